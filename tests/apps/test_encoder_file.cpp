// SPDX-License-Identifier: Apache-2.0
// Encoders in files: exports, descriptions in checkpoints, and networks that begin with the weights of a file.
#include <cmath>
#include <fstream>

#include "apps/shared/encoder/encoder_file.h"
#include "apps/shared/encoder/initial_weights.h"
#include "apps/shared/evaluation/few_labels.h"
#include "tests/support/on_ranks.h"
#include "tests/support/scratch_folder.h"
#include "weft/collectives/transports/self.h"
#include "weft/data/files/checkpoint.h"
#include "weft/data/files/durable_file.h"
#include "weft/optim/training.h"

using namespace weft;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

EncoderDescription description_of(const std::string& network, int64_t width = 2, DType dtype = DType::f32) {
  return {{.network = network, .width = width, .parts = 3, .height = 8, .across = 6, .channels = 1},
          dtype,
          "clothes of \"all\" kinds",
          "nt-xent",
          {"T-shirt", "\u00e9toile"}};
}

std::unique_ptr<Sequential> random_network(const EncoderDescription& about, uint64_t seed = 1) {
  return about.encoder.make("encoder", {.key = {seed}, .dtype = about.dtype});
}

// Writes an encoder of these random weights.
void write_export(const fs::path& file, const EncoderDescription& about, uint64_t seed = 1) {
  run_ranks(1, [&](Communicator& comm) {
    const auto network = random_network(about, seed);
    TrainingState state(comm);
    state.add(network->parameters());
    export_encoder(file, state, about);
  });
}

void expect_same_values(const Module& actual, const Module& expected) {
  const auto a = actual.parameters(), b = expected.parameters();
  expect(a.size() == b.size(), "as many tensors");
  for (size_t i = 0; i < a.size(); ++i) expect_same_bits(a[i]->value, b[i]->value);
}

Tensor images() { return Tensor::uniform({3, 8, 6, 1}, {5}); }

TEST_CASE("what a file says of an encoder is read as it was written, for every encoder and type") {
  for (const std::string& network : names_of_encoders())
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      const EncoderDescription about = description_of(network, 3, dtype);
      const EncoderDescription read = encoder_in(in_words(about), "file");
      CHECK(in_words(read) == in_words(about));
      CHECK((read.classes == about.classes && read.encoder.across == 6 && read.dtype == dtype));
    }
}

TEST_CASE("the words of the sentences that an encoder was trained with are read as they were written") {
  EncoderDescription about = description_of("conv");
  CHECK(!encoder_in(in_words(about), "file").make_matcher(Device::cpu));
  about.vocabulary.emplace(std::vector<std::string>{"", "?", "t-shirt", "\"\u00e9toile\""}, 5);
  const EncoderDescription read = encoder_in(in_words(about), "file");
  CHECK(in_words(read) == in_words(about));
  CHECK(read.vocabulary->length() == 5);
  CHECK(read.make_matcher(Device::cpu)->sentences.parameters()[0]->value.shape()[0] == 4);
  for (const char* words : {"[]", "[\"a\"]", "{}", "[1]", "\"\""}) {
    Metadata wrong = in_words(about);
    wrong["sentences.words"] = words;
    CHECK_THROWS_WITH(encoder_in(wrong, "some.file"), Contains("some.file: ") && Contains("sentences.words"));
  }
  for (const char* length : {"0", "33", "", "five"}) {
    Metadata wrong = in_words(about);
    wrong["sentences.length"] = length;
    CHECK_THROWS_WITH(encoder_in(wrong, "some.file"), Contains("some.file: sentences.length is "));
  }
}

TEST_CASE("a description that lacks a word, or has another one, is refused with the word and the file") {
  const Metadata sound = in_words(description_of("conv"));
  CHECK_THROWS_WITH(encoder_in({{"step", "3"}}, "some.safetensors"),
                    Contains("some.safetensors: it describes no encoder: it is no export"));
  for (const auto& [key, value] : sound) {
    if (key == "encoder.features") continue;  // follows from the network and its width
    Metadata lacking = sound;
    lacking.erase(key);
    CHECK_THROWS_AS(encoder_in(lacking, "file"), MalformedInput);
  }
  const auto with = [&](const std::string& key, const std::string& value) {
    Metadata words = sound;
    words[key] = value;
    return words;
  };
  CHECK_THROWS_WITH(encoder_in(with("encoder.version", "2"), "file"),
                    Contains("does not know the encoder.version \"2\""));
  CHECK_THROWS_WITH(encoder_in(with("encoder.network", "vit"), "file"),
                    Contains("does not know the encoder.network \"vit\""));
  CHECK_THROWS_WITH(encoder_in(with("encoder.epsilon", "1e-6"), "file"), Contains("encoder.epsilon"));
  for (const char* number : {"", "0", "-1", "2x", "1e3", "99999999999999999999", "1025"})
    CHECK_THROWS_WITH(encoder_in(with("encoder.width", number), "file"), Contains("not a number from 1 to 1024"));
  for (const char* list : {"", "[", "[1]", "{}", "[\"a\"] b"})
    CHECK_THROWS_WITH(encoder_in(with("training.classes", list), "file"), Contains("file: training.classes"));
}

TEST_CASE("an exported encoder comes back with the same weights and features on any number of ranks") {
  const ScratchFolder scratch;
  for (const std::string& network : names_of_encoders()) {
    const EncoderDescription about = description_of(network);
    write_export(scratch / "encoder", about);
    const auto expected = random_network(about);
    on_ranks([&](Communicator& comm) {
      const TrainedEncoder read = read_encoder(scratch / "encoder", Device::cpu, comm);
      expect_same_values(*read.network, *expected);
      expect_same_bits((*read.network)(images()).value(), (*expected)(images()).value());
      expect(in_words(read.about) == in_words(about), "the description is there");
    });
  }
}

TEST_CASE("ranks that divide the parameters export the same file as one that has them all") {
  const ScratchFolder scratch;
  const EncoderDescription about = description_of("conv");
  write_export(scratch / "whole", about);
  for (const int stage : {0, 1, 3})
    on_ranks({1, 2, 3}, [&](Communicator& comm) {
      const auto network = random_network(about);
      Training training({{network->parameters(), AdamW{}}}, comm, {.stage = stage});
      training.layer("encoder", *network);
      TrainingState state(comm);
      state.add(training.optimizer());
      export_encoder(scratch / "divided", state, about);
      comm.barrier();
      expect(contents(scratch / "divided") == contents(scratch / "whole"), "the files are equal");
    });
}

TEST_CASE("a damaged export, and one without all of its tensors, are refused on every rank") {
  const ScratchFolder scratch;
  const EncoderDescription about = description_of("conv");
  write_export(scratch / "sound", about);
  std::string bytes = contents(scratch / "sound");
  bytes[bytes.size() - 5] ^= 1;
  std::ofstream(scratch / "damaged", std::ios::binary) << bytes;
  write_safetensors(scratch / "empty", std::vector<NamedTensor>{}, in_words(about));
  write_export(scratch / "wider", description_of("conv", 3));
  const SafetensorsFile wider(scratch / "wider");
  std::vector<NamedTensor> tensors;
  for (const auto& entry : wider.tensors()) tensors.push_back({entry.name, wider.read(entry.name)});
  write_safetensors(scratch / "other", tensors, in_words(about));
  const SafetensorsFile sound(scratch / "sound");
  std::vector<NamedTensor> diverged = {{"head.0.bias", Tensor::full({4}, std::nan(""))}};
  for (const auto& entry : sound.tensors()) diverged.push_back({entry.name, sound.read(entry.name)});
  write_safetensors(scratch / "diverged", diverged, in_words(about));
  for (const auto& [file, what] :
       {std::pair("damaged", "does not have its checksum"),
        std::pair("diverged", "tensor \"head.0.bias\", element 0, is not finite"),
        std::pair("empty", "encoder.0.weight: is missing"),
        std::pair("other", "encoder.0.weight: is f32 (3, 3, 1, 3) in the file, not f32 (3, 3, 1, 2)"),
        std::pair("absent", "there is no such file")})
    for (const int ranks : {1, 3})
      CHECK_THROWS_WITH(
          run_ranks(ranks, [&, name = file](Communicator& comm) { read_encoder(scratch / name, Device::cpu, comm); }),
          Contains(what));
}

TEST_CASE("a place that cannot be written is noticed before anything else, and left as it is") {
  const ScratchFolder scratch;
  run_ranks(2, [&](Communicator& comm) { expect_room_for_export(scratch / "new", comm); });
  CHECK(fs::is_empty(scratch.path));
  run_ranks(2, [&](Communicator& comm) { expect_room_for_export("", comm); });
  for (const fs::path& place : {scratch / "no folder" / "file", scratch.path, fs::path("/proc/file")})
    CHECK_THROWS_WITH(run_ranks(2,
                                [&](Communicator& comm) {
                                  expect_room_for_export(place, comm);
                                  comm.barrier();
                                }),
                      Contains(place.string() + ": cannot be"));
}

TEST_CASE("a network begins with the tensors of a file that fit, converted to its type, on any number of ranks") {
  const ScratchFolder scratch;
  const EncoderDescription about = description_of("conv");
  write_export(scratch / "encoder", about, 7);
  const auto expected = random_network(about, 7);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
    on_ranks([&](Communicator& comm) {
      const Init init{.key = {1}, .dtype = dtype};
      const auto encoder = about.encoder.make("encoder", init), head = projection_head("head", 16, 4, 4, init),
                 as_before = projection_head("head", 16, 4, 4, init);
      std::vector<Parameter*> all = encoder->parameters();
      for (Parameter* parameter : head->parameters()) all.push_back(parameter);
      const std::string told = take_weights(scratch / "encoder", {"encoder", all}, comm).summary;
      for (size_t i = 0; i < encoder->parameters().size(); ++i)
        expect_same_bits(encoder->parameters()[i]->value, expected->parameters()[i]->value.to(dtype));
      expect_same_values(*head, *as_before);
      expect(told.find("12 of 18 tensors; the others are random: head.0.weight is not in the file") != told.npos, told);
    });
}

TEST_CASE("a file whose encoder is another one, or of which nothing fits, is refused with the first difference") {
  const ScratchFolder scratch;
  write_export(scratch / "encoder", description_of("conv"));
  const auto refused = [&](const std::vector<Parameter*>& parameters, const std::string& what) {
    for (const int ranks : {1, 3})
      CHECK_THROWS_WITH(run_ranks(ranks,
                                  [&](Communicator& comm) {
                                    take_weights(scratch / "encoder", {"encoder", parameters}, comm);
                                  }),
                        Contains(what));
  };
  const auto wider = random_network(description_of("conv", 3));
  refused(wider->parameters(),
          "its encoder is another one: encoder.0.weight is f32 (3, 3, 1, 2) in the file, not f32 (3, 3, 1, 3)");
  refused(random_network(description_of("mlp"))->parameters(),
          "its encoder is another one: encoder.1.weight is not in the file");
  refused(projection_head("head", 4, 4, 4, {})->parameters(),
          "none of its tensors fits: head.0.weight is not in the file");
}

TEST_CASE("the tensors of one state begin with a file's only if all of them can") {
  const ScratchFolder scratch;
  const Tensor codes = Tensor::uniform({8, 4}, {1}), sizes = Tensor::uniform({8}, {2}),
               encoder = Tensor::uniform({4}, {3});
  const std::vector<NamedTensor> stored = {{"vq-vae.encoder", encoder}, {"vq.codes", codes}, {"vq.sizes", sizes}};
  write_safetensors(scratch / "file", stored, {});
  on_ranks([&](Communicator& comm) {
    for (const int64_t count : {8, 9}) {
      Parameter of_encoder("vq-vae.encoder", Tensor::zeros({4})), of_codes("vq.codes", Tensor::zeros({count, 4})),
          of_sizes("vq.sizes", Tensor::zeros({8}));
      const std::vector<Parameter*> all = {&of_encoder, &of_codes, &of_sizes};
      const TakenTensors taken = take_weights(scratch / "file", {"vq-vae", all, {&of_codes, &of_sizes}}, comm);
      expect_same_bits(of_encoder.value, encoder);
      expect(taken.state == (count == 8), "codes are taken if they fit");
      expect_same_bits(of_sizes.value, taken.state ? sizes : Tensor::zeros({8}));
      if (taken.state) expect_same_bits(of_codes.value, codes);
      const bool told = taken.summary.find("vq.codes is f32 (8, 4) in the file, not f32 (9, 4)") != std::string::npos;
      expect(told == (count == 9), taken.summary);
    }
  });
}

TEST_CASE(
    "a probe that sees few labels has the same samples and accuracy on any number of ranks, and spares features") {
  constexpr int64_t samples = 60, classes = 3;
  Tensor labels({samples}, DType::i64), rows({samples, 2}, DType::f64);
  const Tensor noise = Tensor::uniform({samples, 2}, {3}, -1, 1, DType::f64);
  for (int64_t i = 0; i < samples; ++i) {
    labels.mutate<int64_t>()[i] = i % classes;
    for (int64_t j = 0; j < 2; ++j)
      rows.mutate<double>()[2 * i + j] = 0.8 * noise.data<double>()[2 * i + j] + static_cast<double>(i % classes == j);
  }
  const Tensor before = rows.clone();
  std::vector<Draws> found;
  for (const int ranks : {1, 2, 3})
    run_ranks(ranks, [&](Communicator& comm) {
      const int64_t n = comm.size();  // uneven parts, of which the first is empty if there are several
      const auto end = [&](int64_t r) { return n == 1 ? samples * r : samples * r * (r - 1) / (n * (n - 1)); };
      const int64_t first = end(comm.rank().value), last = end(comm.rank().value + 1);
      const LabelledFeatures mine{rows.slice(first, last), labels.slice(first, last)};
      const Draws draws = few_label_probe(mine.clone(), labels, mine.clone(), classes, 4, 5, {9}, comm);
      nearest_neighbours(mine, mine, classes, 4, comm);
      if (comm.rank().value == 0) found.push_back(draws);
    });
  expect_same_bits(rows, before);
  for (const Draws& each : found) {
    CHECK(each.mean == Approx(found[0].mean).margin(1e-12));
    CHECK(each.deviation == Approx(found[0].deviation).margin(1e-9));
  }
  CHECK((found[0].mean > 0.5 && found[0].mean < 1));
  CHECK(found[0].deviation > 0);

  Tensor wide = Tensor::zeros({samples, 40}, DType::f64);  // more features than samples: the other way to solve it
  for (int64_t i = 0; i < 2 * samples; ++i) wide.mutate<double>()[i / 2 * 40 + i % 2] = rows.data<double>()[i];
  Communicator self(connect_self());
  const LabelledFeatures all{wide, labels};
  const Draws same = few_label_probe(all.clone(), labels, all.clone(), classes, 4, 5, {9}, self);
  CHECK(same.mean == Approx(found[0].mean).margin(1e-12));
}

}  // namespace

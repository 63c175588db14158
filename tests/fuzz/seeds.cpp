// SPDX-License-Identifier: Apache-2.0
// seeds FOLDER writes small valid inputs for every target, as the programs write them, as a start for libFuzzer.
#include <zlib.h>

#include <cmath>

#include "apps/shared/encoder/description.h"
#include "apps/shared/launch/options.h"
#include "apps/shared/run/metrics.h"
#include "apps/shared/run/sessions.h"
#include "tests/data/checkpoint_checks.h"
#include "tests/data/picture_files.h"
#include "tests/support/scratch_folder.h"
#include "weft/data/batches.h"
#include "weft/data/files/checkpoint.h"
#include "weft/data/files/safetensors_header.h"
#include "weft/data/numpy/npz.h"

namespace weft {
namespace {

void seed(const std::filesystem::path& folder, const std::string& target, const std::string& name,
          const std::string& bytes) {
  std::filesystem::create_directories(folder / target);
  put(folder / target / name, bytes);
}

// So that sound_sums.h keeps the checksums valid.
std::string asking_for_sums(std::string file) {
  const std::string key = "\"weft.xxh64\":\"";
  return file.replace(file.find(key) + key.size(), 16, 16, '0');
}

void seed_checkpoints(const std::filesystem::path& folder) {
  const ScratchFolder scratch;
  const NamedTensors model = {{"weight", Tensor::full({2, 3}, 0.5)},
                              {"count", Tensor::full({}, 3, DType::i64)},
                              {"half", Tensor::full({4}, 0.25, DType::bf16)}};
  const Metadata words = {{"data", Batches(10, 3, 1).position()}, {"seed", "1"}};
  const std::string saved = contents(save_checkpoint(scratch.path, 7, model, words));
  write_safetensors(scratch / "x", sample(), {{"of", "all types"}});
  for (const char* target : {"checkpoint", "safetensors_file"}) {
    seed(folder, target, "checkpoint", saved);
    seed(folder, target, "asking", asking_for_sums(saved));
    seed(folder, target, "sample", contents(scratch / "x"));
    seed(folder, target, "asking_sample", asking_for_sums(contents(scratch / "x")));
  }
  seed(folder, "safetensors_file", "half",
       file_of(R"({"a":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}})", std::string("\0\x3c\xff\x7b\1\x80", 6)));
  SafetensorsHeader header{{{"first \"\u00e9\"", DType::f64, {2, 3}, 0, 48}, {"second", DType::u8, {16}, 48, 64}},
                           words};
  seed(folder, "safetensors_header", "two", text(header));
  seed(folder, "safetensors_header", "foreign",
       R"({"a":{"dtype":"BF16","shape":[4,8],"data_offsets":[0,64]},)"
       R"("b":{"shape":[0],"dtype":"F32","data_offsets":[64,64]}})");
  seed(folder, "safetensors_header", "half", R"({"a":{"dtype":"F16","shape":[32],"data_offsets":[0,64]}})");
}

std::string gzip(const std::string& bytes) {
  const ScratchFolder scratch;
  gzFile file = gzopen((scratch / "x").c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  return contents(scratch / "x");
}

void seed_data(const std::filesystem::path& folder) {
  const std::string images =
      std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x1c\0\0\0\x1c", 16) + std::string(2 * 28 * 28, '\7');
  const std::string labels("\0\0\x08\x01\0\0\0\x02\x09\x03", 10);
  seed(folder, "idx", "labels", labels);
  seed(folder, "idx", "gzipped_labels", gzip(labels));
  seed(folder, "idx", "gzipped_images", gzip(images));
  const std::string packed = gzip(images);
  const std::string size = {static_cast<char>(packed.size()), static_cast<char>(packed.size() >> 8)};
  seed(folder, "fashion_mnist", "two", size + packed + labels);
  seed(folder, "fashion_mnist", "two_gzipped", size + packed + gzip(labels));
}

void seed_images(const std::filesystem::path& folder) {
  for (const int64_t channels : {1, 3}) {
    const Bitmap picture = slope(9, 14, channels);
    seed(folder, "image", "png" + std::to_string(channels), png_of(picture));
    seed(folder, "image", "jpeg" + std::to_string(channels), jpeg_of(picture));
    seed(folder, "image", "progressive" + std::to_string(channels), jpeg_of(picture, true));
  }
}

// Written by NumPy, and by us.
void seed_arrays(const std::filesystem::path& folder) {
  for (const auto& file : std::filesystem::directory_iterator(std::string(WEFT_TEST_FILES) + "/npy"))
    seed(folder, file.path().extension().string().substr(1), file.path().stem().string(), contents(file.path()));
  const ScratchFolder scratch;
  NamedTensors arrays = sample();
  std::erase_if(arrays, [](const NamedTensor& x) { return x.tensor.dtype() == DType::bf16; });
  for (size_t i = 0; i < arrays.size(); ++i) {
    write_npy(scratch / "x", arrays[i].tensor);
    seed(folder, "npy", std::to_string(i), contents(scratch / "x"));
  }
  write_npz(scratch / "x", arrays);
  seed(folder, "npz", "stored", contents(scratch / "x"));
}

void seed_runs(const std::filesystem::path& folder) {
  const ScratchFolder scratch;
  {
    Metrics metrics(scratch.path, {"loss", "accuracy", "rate"});
    metrics.add(1, {{"loss", 2.5}, {"rate", 1e-9}});
    metrics.add(7, {{"loss", 0.1}, {"accuracy", std::numeric_limits<double>::infinity()}});
  }
  seed(folder, "metrics", "two", contents(scratch / "metrics.jsonl"));
  Traffic traffic;
  traffic[Verb::all_reduce] = {2, 20, 0.5, 1};
  traffic[Verb::all_gather_v] = {3, 30, 1e-6};
  std::string about;
  for (const auto& [key, value] : in_words({{}, DType::f32, "clothes", "nt-xent", {"T-shirt", "boot"}}))
    about += key + "=" + value + "\n";
  seed(folder, "encoder", "conv", about);
  for (const char* target : {"sessions", "plan"})
    seed(folder, target, "two",
         json({{0, 10, 100, {{4, 1, 0.5}}, {traffic}}, {10, 20, 200, {{8, 2, 1}, {8, 3, 1}}, {{}, traffic}}}));
  Options options;
  const CommandLine line("train", "Trains.", options);
  for (const char* target : {"config", "earlier_config"}) seed(folder, target, "defaults", line.config());
  seed(folder, "config", "comments", "# of today\nepochs = 5  # few\nhidden = [1,\n 2]\nout = 'run \"1\" #2'\n");
  seed(folder, "command_line", "words", "--epochs=3\n--hidden\n7\n5\n--quiet\n--rate\n1e-3\n--loss\nclip\n--out\na b");
  seed(folder, "command_line", "config", "--seed\n3\n\n" + line.config());
  seed(folder, "tapes", "leaf",
       R"({"title":"A run","step":1,"ranks":2,"tapes":[[{"op":"leaf","collective":false,"place":"","ranks":[)"
       R"([0,"","V","2x1 a3f9 1 2","[[1], [2]]","",""],null]}]]})");
  seed(folder, "position", "first", Batches(10, 3, 1).position());
}

// Of the dump in manifest.cpp.
void seed_manifests(const std::filesystem::path& folder) {
  const auto add = [&](const char* name, const std::string& entries) {
    seed(folder, "manifest", name, "{\"weft_manifest\":1" + entries + "}");
  };
  const std::string slices = R"J("slice":{"role":"local_gradient","of":"slices"},)J"
                             R"J("slice.reduced":{"role":"reduced_gradient","of":"slices"})J";
  add("least", "");
  add("mesh", R"J(,"mesh":{"names":["dp","tp"],"shape":[2,2]},"rows":[1,2,3,4],"parameters":{)J"
              R"J("w":{"local":["Partial(avg)","Partial()"],"class":"norms"},"tied":{"local":{"tp":"Shard(0)"}},)J"
              R"J("slices":{"local":"h[tp] d","averaged":["tp"]}},"hashes":{"w":["a","a","a","b"]},"tensors":{)J" +
                  slices + "}");
  add("divided", R"J(,"mesh":{"names":["dp","tp"],"shape":[1,4]},"reducer":"sum","parameters":{)J"
                 R"J("slices":{"local":["R","V"],"reduced":["I","V"]},"tied":{"local":"h[tp:partial]"}},"tensors":{)J" +
                     slices + "}");
  add("loss", R"J(,"loss":{"name":"clip"},"files":["rank0.safetensors","rank1.safetensors",)J"
              R"J("rank2.safetensors","rank3.safetensors"],"micro_batches":2)J");
  add("roles", R"J(,"loss":{"name":"barlow_twins","options":{"lambda":0.5}},"tensors":{)J"
               R"J("images":{"role":"feature","of":"first"},"images.grad":{"role":"seam_gradient","of":"first"},)J"
               R"J("texts":{"role":"feature","of":"second"},"texts.grad":{"role":"seam_gradient","of":"second"},)J"
               R"J("earlier":{"role":"previous_gradient","of":"w"},"repeated":{"role":"repeated_gradient","of":"w"},)J"
               R"J("norm":{"role":"gradient_norm"}})J");
  add("optimizer", R"J(,"optimizer":{"name":"muon","rate":0.5,"clip":1,"iterations":2},"tensors":{)J"
                   R"J("earlier":{"role":"update","of":"w"},"repeated":{"role":"weight","of":"w"}})J");
  add("scale", R"J(,"scale":{"step":0.001},"tensors":{"along":{"role":"direction","of":"w"},)J"
               R"J("rest":{"role":"objective","of":""},"moved":{"role":"objective","of":"w"}})J");
  add("truth", R"J(,"rows":[1,2],"counts":{"tokens":[[1,2],[3,4],[5,6],[7,8]]},"truth":{"files":)J"
               R"J(["truth.safetensors"],"without_gradient":["all_gather at step.py:3"]})J");
  add("mended", R"J(,"truth":{"files":["truth.safetensors"],"mended":{"collectives":["all_gather at step.py:3"],)J"
                R"J("files":["mended.safetensors","mended.safetensors","mended.safetensors","mended.safetensors"]}})J");
  add("layer", R"J(,"tensors":{"x":{"role":"layer_input","of":"n"},"x.grad":{"role":"layer_input_gradient",)J"
               R"J("of":"n"},"y.grad":{"role":"layer_output_gradient","of":"n"},"epsilon":{"role":)J"
               R"J("layer_epsilon","of":"n"}})J");
}

// A step and a loss, in turns.
void seed_charts(const std::filesystem::path& folder) {
  const double numbers[] = {1, 2.5, 2, 1.75, 3, 1e308, 4, -1.7e308, 5, 5e-324};
  seed(folder, "chart", "losses", {reinterpret_cast<const char*>(numbers), sizeof numbers});
}

// Gradients of equal ranks, and what is no number.
void seed_verdicts(const std::filesystem::path& folder) {
  std::vector<double> numbers(150, 0.5);
  for (const auto& [name, last] : {std::pair{"equal", 0.5}, {"infinite", HUGE_VAL}, {"huge", 1e300}}) {
    numbers.back() = last;
    seed(folder, "verdict", name, {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)});
  }
}

void seed_texts(const std::filesystem::path& folder) {
  for (const char* seconds : {"s60", "s0.001", "s1e6", "r8", "l3"}) seed(folder, "environment", seconds, seconds);
  seed(folder, "json_text", "all",
       R"({"string":"a\u00e9\ud83d\ude00\n","strings":["\"","é"],"number":17,"real":-1.5e-3,"any":{"k":"v"}})");
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  weft::seed_checkpoints(argv[1]);
  weft::seed_data(argv[1]);
  weft::seed_images(argv[1]);
  weft::seed_arrays(argv[1]);
  weft::seed_runs(argv[1]);
  weft::seed_manifests(argv[1]);
  weft::seed_texts(argv[1]);
  weft::seed_charts(argv[1]);
  weft::seed_verdicts(argv[1]);
}

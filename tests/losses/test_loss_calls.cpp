// SPDX-License-Identifier: Apache-2.0
// Calls of losses and quantizers: errors name the loss and the calling line, options are checked, and ranks whose
// options differ get an error before any data move.
#include <limits>
#include <set>

#include "tests/support/on_ranks.h"
#include "weft/collectives/run_ranks.h"
#include "weft/losses/assignment/dino.h"
#include "weft/losses/assignment/msn.h"
#include "weft/losses/assignment/swav.h"
#include "weft/losses/contrastive/clip.h"
#include "weft/losses/contrastive/dcl.h"
#include "weft/losses/contrastive/info_nce.h"
#include "weft/losses/contrastive/logit_scale.h"
#include "weft/losses/contrastive/memory_bank.h"
#include "weft/losses/contrastive/nt_xent.h"
#include "weft/losses/contrastive/siglip.h"
#include "weft/losses/contrastive/supcon.h"
#include "weft/losses/metrics/cross_entropy.h"
#include "weft/losses/metrics/regression_metrics.h"
#include "weft/losses/metrics/structural_similarity.h"
#include "weft/losses/quantizers/binary_spherical.h"
#include "weft/losses/quantizers/finite_scalar.h"
#include "weft/losses/quantizers/grouped_residual.h"
#include "weft/losses/quantizers/residual_finite_scalar.h"
#include "weft/losses/quantizers/sim_vq.h"
#include "weft/losses/quantizers/vector_quantize.h"
#include "weft/losses/statistics/barlow_twins.h"
#include "weft/losses/statistics/koleo.h"
#include "weft/losses/statistics/sigreg.h"
#include "weft/losses/statistics/tico.h"
#include "weft/losses/statistics/vicreg.h"

using namespace weft;

namespace test_loss_calls {

constexpr Init f64 = {.key = {4}, .dtype = DType::f64}, bf16 = {.key = {4}, .dtype = DType::bf16};
constexpr Pass training = {.training = true, .key = {7}};

Tensor four(DType dtype = DType::f64) { return data_of(0, {4, 3}, 0, dtype); }
Tensor narrow() { return four(DType::bf16); }
Tensor wide() { return data_of(0, {4, 5}); }
Var one(DType dtype = DType::f64) { return Tensor::full({}, 1, dtype); }
VectorQuantize five_codes(const Init& init = f64) { return {"vq", {{.dim = 3, .codes = 5}}, init}; }
SimVq five_mapped(const Init& init = f64) { return {"vq", {.dim = 3, .codes = 5}, init}; }
Tensor pictures() { return data_of(0, {2, 8, 16, 1}); }
Tensor labels(double last) { return Tensor::from({4}, {0, 1, 2, last}, DType::i64); }

// A mistake made on the line of the call.
struct Mistake {
  int line;
  const char* loss;
  std::function<void(Communicator&)> make;
  std::vector<const char*> said;
};

// One call a line, and its message on the next.
// clang-format off
const std::vector<Mistake> mistakes = {
    {__LINE__, "nt_xent", [](auto& comm) { nt_xent(four(), wide(), {}, comm); },
     {"two views are (b, d) each"}},
    {__LINE__, "nt_xent", [](auto& comm) { nt_xent(four(), four(), {.temperature = 0}, comm); },
     {"the temperature is 0, but must be positive and finite"}},
    {__LINE__, "nt_xent", [](auto& comm) { nt_xent(four(), four(), {.schedule = {KeySchedule::chunked, 0}}, comm); },
     {"schedule: chunks of 0 rows"}},
    {__LINE__, "nt_xent", [](auto& comm) { nt_xent(four(), four(), {.negatives = Var(four(DType::bf16))}, comm); },
     {"negatives are (any, d)", "bf16 (4, 3)", "make the bank that has them f32"}},
    {__LINE__, "info_nce", [](auto& comm) { info_nce(four(), wide(), {}, comm); },
     {"features of pairs"}},
    {__LINE__, "info_nce", [](auto& comm) { info_nce(four(), four(), {.temperature = -1}, comm); },
     {"the temperature is -1, but must be positive and finite"}},
    {__LINE__, "info_nce", [](auto& comm) { info_nce(four(), four(), {.negatives = Var(wide())}, comm); },
     {"negatives are (any, d)", "(4, 5)"}},
    {__LINE__, "dcl", [](auto& comm) { dcl(four(), four(DType::f32), {}, comm); },
     {"two views", "f64", "f32"}},
    {__LINE__, "dcl", [](auto& comm) { dcl(four(), four(), {.temperature = INFINITY}, comm); },
     {"the temperature is inf, but must be positive and finite"}},
    {__LINE__, "dcl", [](auto& comm) { dcl(four(), four(), {.sigma = 0}, comm); },
     {"the sigma is 0, but must be positive and finite"}},
    {__LINE__, "clip_loss", [](auto& comm) { clip_loss(four(), wide(), one(), {}, comm); },
     {"features of pairs"}},
    {__LINE__, "clip_loss", [](auto& comm) { clip_loss(narrow(), narrow(), one(DType::bf16), {}, comm); },
     {"the scale is a scalar of f32, not bf16 ()", "make the module that learns it f32"}},
    {__LINE__, "siglip_loss", [](auto& comm) { siglip_loss(four(), four(), one(), one(DType::f32), {}, comm); },
     {"the bias is a scalar of f64, not f32 ()"}},
    {__LINE__, "supcon", [](auto& comm) { supcon(four(), labels(5), 4, {}, comm); },
     {"labels: class 5 at position 3 is not in 0..3"}},
    {__LINE__, "supcon", [](auto& comm) { supcon(four(), labels(-1), 4, {}, comm); },
     {"labels: class -1 at position 3"}},
    {__LINE__, "supcon", [](auto& comm) { supcon(four(), labels(3).to(DType::f32), 4, {}, comm); },
     {"labels i64 (b)", "f32 (4)"}},
    {__LINE__, "supcon", [](auto& comm) { supcon(four(), labels(3), 4, {.temperature = NAN}, comm); },
     {"the temperature is", "nan, but must be positive and finite"}},
    {__LINE__, "barlow_twins", [](auto& comm) { barlow_twins(four(), wide(), {}, comm); },
     {"two views of the same samples"}},
    {__LINE__, "barlow_twins", [](auto& comm) { barlow_twins(four(), four(), {.lambda = NAN}, comm); },
     {"the lambda is", "must be finite"}},
    {__LINE__, "vicreg", [](auto& comm) { vicreg(four(), four(DType::f32), {}, comm); },
     {"features of one floating type", "f64 and f32"}},
    {__LINE__, "vicreg", [](auto& comm) { vicreg(four().slice(0, 0), four().slice(0, 0), {}, comm); },
     {"the batch of all ranks has", "at least two"}},
    {__LINE__, "Tico", [](auto& comm) { Tico("tico", 5, f64)(four(), four(), {}, comm); },
     {"'tico.covariance' is f64 (5, 5)"}},
    {__LINE__, "Tico", [](auto& comm) { Tico("tico", 3, f64)(four(DType::f32), four(DType::f32), {}, comm); },
     {"'tico.covariance' is f64"}},
    {__LINE__, "sigreg", [](auto& comm) { sigreg(labels(0), {1}, {}, comm); },
     {"features (samples, ..., features)"}},
    {__LINE__, "sigreg", [](auto& comm) { sigreg(four(), {1}, {.t_max = 0}, comm); },
     {"the t_max is 0, but must be positive and finite"}},
    {__LINE__, "lejepa", [](auto& comm) { lejepa(four(), four(), {1}, {}, comm); },
     {"global views (samples, views, features)"}},
    {__LINE__, "lejepa", [](auto& comm) { lejepa(data_of(0, {4, 2, 3}), data_of(0, {4, 1, 5}), {1}, {}, comm); },
     {"local ones of the same samples are needed, not (4, 2, 3) and (4, 1, 5)"}},
    {__LINE__, "koleo", [](auto& comm) { koleo(labels(0), {}, comm); },
     {"features (samples, features)"}},
    {__LINE__, "koleo", [](auto& comm) { koleo(four(), {.neighbours = 0}, comm); },
     {"0 neighbours"}},
    {__LINE__, "swav", [](auto& comm) { swav({four()}, {wide()}, {}, comm); },
     {"all views are (samples, classes) alike"}},
    {__LINE__, "swav", [](auto& comm) { swav({four(), wide()}, {}, {}, comm); },
     {"sinkhorn: logits are"}},
    {__LINE__, "swav", [](auto& comm) { swav({four()}, {four()}, {.temperature = 0}, comm); },
     {"the temperature is 0, but must be positive and finite"}},
    {__LINE__, "msn", [](auto& comm) { msn({four()}, four(), wide(), {}, comm); },
     {"targets (4, 3)", "prototypes (4, 5)"}},
    {__LINE__, "msn", [](auto& comm) { msn({four()}, four(), four(), {.target_temperature = 0}, comm); },
     {"the target temperature is 0, but must be positive and finite"}},
    {__LINE__, "Dino", [](auto& comm) { Dino("dino", 5, f64)({four()}, {four(), four()}, {}, comm); },
     {"the center has 5 classes"}},
    {__LINE__, "Dino", [](auto& comm) { Dino("dino", 3, f64, {.student_temperature = 0})({four()}, {}, {}, comm); },
     {"the student temperature is 0, but must be positive and finite"}},
    {__LINE__, "Dino", [](auto& comm) { Dino("dino", 3, f64)({four(DType::f32)}, {four(), four()}, {}, comm); },
     {"f32", "f64"}},
    {__LINE__, "MemoryBank", [](auto& comm) { MemoryBank("bank", 6, 3, f64).push(wide(), comm); },
     {"'bank.keys' is (6, 3), keys are (4, 5)"}},
    {__LINE__, "mean_squared_error", [](auto& comm) { mean_squared_error(four(), wide(), comm); },
     {"predictions (4, 3) for targets (4, 5)"}},
    {__LINE__, "root_mean_squared_error", [](auto& comm) { root_mean_squared_error(four(), four(DType::f32), comm); },
     {"f64", "f32"}},
    {__LINE__, "pearson_correlation", [](auto& comm) { pearson_correlation(one(), one(), comm); },
     {"one value or row for each sample"}},
    {__LINE__, "r2_score", [](auto& comm) { r2_score(labels(0), labels(0), comm); },
     {"i64"}},
    {__LINE__, "explained_variance", [](auto& comm) { explained_variance(four(), four(DType::f32), comm); },
     {"f64", "f32"}},
    {__LINE__, "cosine_similarity", [](auto& comm) { cosine_similarity(one(), one(), Over::mean, comm); },
     {"rows are needed"}},
    {__LINE__, "cross_entropy", [](auto& comm) { cross_entropy(four(), labels(5), {}, comm); },
     {"target 5 at position 3 is not in 0..2"}},
    {__LINE__, "structural_similarity", [](auto& comm) { structural_similarity(four(), four(), {}, comm); },
     {"pictures (samples, height, width, channels)"}},
    {__LINE__, "structural_similarity", [](auto& comm) { structural_similarity(pictures(), pictures(), {}, comm); },
     {"a window of 11 x 11 does not fit into pictures (2, 8, 16, 1)", "take a smaller sigma"}},
    {__LINE__, "structural_similarity", [](auto& comm) { structural_similarity(four(), four(), {.sigma = 0}, comm); },
     {"the sigma is 0, but must be positive and finite"}},
    {__LINE__, "LookupFree", [](auto& comm) { LookupFree({.bits = 4})(four(), training, comm); },
     {"(samples, ..., 4) of a floating type is needed"}},
    {__LINE__, "LookupFree", [](auto&) { LookupFree({.bits = 4}).decode(Tensor::full({1}, 16, DType::i64)); },
     {"indices: index 16 at position 0 is not in 0..15"}},
    {__LINE__, "BinarySpherical", [](auto& comm) { BinarySpherical({.bits = 4})(four(), training, comm); },
     {"(samples, ..., 4)"}},
    {__LINE__, "BinarySpherical", [](auto&) { BinarySpherical({.bits = 4}).decode(Tensor::full({1}, 16, DType::i64)); },
     {"LookupFree: indices: index 16"}},
    {__LINE__, "FiniteScalar", [](auto& comm) { FiniteScalar({5, 4})(four(), training, comm); },
     {"(samples, ..., 2)"}},
    {__LINE__, "FiniteScalar", [](auto&) { FiniteScalar({5, 4}).decode(Tensor::full({1}, 20, DType::i64)); },
     {"index 20"}},
    {__LINE__, "ResidualFiniteScalar", [](auto& comm) { ResidualFiniteScalar({5, 4}, 2)(four(), training, comm); },
     {"tokens have 3 features"}},
    {__LINE__, "SimVq", [](auto& comm) { five_mapped(bf16)(four(DType::bf16), training, comm); },
     {"tokens are f32, 'vq.table' is bf16; make this module f32"}},
    {__LINE__, "SimVq", [](auto&) { five_mapped().decode(Tensor::full({1}, 5, DType::i64)); },
     {"index 5"}},
    {__LINE__, "VectorQuantize", [](auto& comm) { five_codes()(four(DType::f32), training, comm); },
     {"tokens are f32, 'vq.codes' is f64"}},
    {__LINE__, "VectorQuantize", [](auto& comm) { five_codes()(four(), training, comm, Var(four())); },
     {"the mask of (4, 3) is u8 (4), not f64 (4, 3)"}},
    {__LINE__, "VectorQuantize", [](auto& comm) { five_codes().start(wide(), comm, {1}); },
     {"(samples, ..., 3)"}},
};
// clang-format on

// A nested quantizer: the error names the outer one, then the inner one.
std::unique_ptr<ResidualQuantizer> residual() {
  ResidualQuantizer::Layers layers;
  layers.push_back(std::make_unique<VectorQuantize>("vq", VectorQuantizeOptions{{.dim = 3, .codes = 5}}, f64));
  return std::make_unique<ResidualQuantizer>(std::move(layers));
}

TEST_CASE("an error of a loss names the loss and the line that called it") {
  for (const Mistake& m : mistakes) {
    INFO("line " << m.line);
    on_ranks({1, 2}, [&](Communicator& comm) {
      const std::string said = expect_refusal([&] { m.make(comm); }, {});
      const std::string place = text(Site::here("", __FILE__, m.line)) + ": " + m.loss + ": ";
      expect(said.starts_with(place), said + "\n  does not begin with " + place);
      for (const char* part : m.said) expect(said.find(part) != std::string::npos, said + "\n  does not say: " + part);
    });
  }
}

TEST_CASE("an error in a nested quantizer names both quantizers and the line that called the outer one") {
  on_ranks({1, 2}, [](Communicator& comm) {
    const Tensor single = four(DType::f32);
    const Site here = Site::here();
    const std::string said = expect_refusal([&] { (*residual())(single, training, comm); }, {});
    const std::string place = text(Site::here("", __FILE__, here.line + 1)) + ": ";
    expect(said.starts_with(place + "ResidualQuantizer: VectorQuantize: tokens are f32"), said);
    GroupedResidual::Groups groups;
    groups.push_back(residual());
    GroupedResidual grouped(std::move(groups));
    expect_refusal(
        [&] {
          grouped.decode(Tensor::full({1, 1, 1}, 9, DType::i64));
        },
        {"GroupedResidual: ResidualQuantizer: VectorQuantize: ", "index 9"});
  });
}

TEST_CASE("quantizers and scales refuse invalid temperatures in their constructors") {
  for (const double value : {0.0, -1.0, double(NAN), double(INFINITY)}) {
    expect_refusal([&] { LookupFree({.bits = 2, .scale = value}); }, {"LookupFree: the scale is ", "must be positive"});
    expect_refusal([&] { LookupFree({.bits = 2, .inverse_temperature = value}); },
                   {"LookupFree: the inverse temperature is ", "but must be positive and finite"});
    expect_refusal([&] { BinarySpherical({.bits = 2, .temperature = value}); },
                   {"BinarySpherical: the temperature is ", "but must be positive and finite"});
    expect_refusal([&] { LogitScale("scale", f64, {.initial = value}); },
                   {"LogitScale: of 'scale' the initial scale is ", "but must be positive and finite"});
    expect_refusal([&] { LogitScale("scale", f64, {.least = value}); }, {"the least scale is "});
  }
  expect_refusal([&] { five_codes(bf16); }, {"Codebook: 'vq.codes' is bf16", "f32"});
}

// A loss with an option that differs on the last rank.
struct Difference {
  const char* loss;
  std::function<void(bool, Communicator&)> call;
  const char *usual, *odd;  // as the error prints them
};

std::vector<Difference> differences() {
  const Tensor x = four(), y = data_of(1, {4, 3});
  return {
      {"nt_xent", [=](bool odd, auto& comm) { nt_xent(x, y, {.temperature = odd ? 0.2 : 0.1}, comm); },
       "temperature 0.1, gather", "temperature 0.2, gather"},
      {"nt_xent",
       [=](bool odd, auto& comm) {
         nt_xent(x, y, {.schedule = {odd ? KeySchedule::ring : KeySchedule::both_ways}}, comm);
       },
       "temperature 0.5, both ways", "temperature 0.5, ring"},
      {"nt_xent",
       [=](bool odd, auto& comm) {
         nt_xent(x, y, {.schedule = {KeySchedule::chunked, odd ? 2 : 3}}, comm);
       },
       "chunks of 3", "chunks of 2"},
      {"info_nce", [=](bool odd, auto& comm) { info_nce(x, y, {.temperature = odd ? 0.25 : 0.07}, comm); },
       "temperature 0.07", "temperature 0.25"},
      {"info_nce", [=](bool odd, auto& comm) { info_nce(x, y, {.symmetric = odd}, comm); }, "temperature 0.1, gather",
       ""},
      {"dcl", [=](bool odd, auto& comm) { dcl(x, y, {.temperature = odd ? 0.2 : 0.1}, comm); }, "temperature 0.1",
       "temperature 0.2"},
      {"dcl", [=](bool odd, auto& comm) { dcl(x, y, {.sigma = odd ? 0.25 : 0.5}, comm); }, "", ""},
      {"clip_loss",
       [=](bool odd, auto& comm) { clip_loss(x, y, one(), {odd ? ClipForm::local_rows : ClipForm::replicated}, comm); },
       "replicated", "local rows"},
      {"siglip_loss",
       [=](bool odd, auto& comm) {
         siglip_loss(x, y, one(), one(), {odd ? KeySchedule::ring : KeySchedule::gather}, comm);
       },
       "gather", "ring"},
      {"supcon", [=](bool odd, auto& comm) { supcon(x, labels(3), 4, {.temperature = odd ? 0.2 : 0.1}, comm); },
       "temperature 0.1", "temperature 0.2"},
      {"barlow_twins", [=](bool odd, auto& comm) { barlow_twins(x, y, {.lambda = odd ? 1.0 : 2.0}, comm); }, "lambda 2",
       "lambda 1"},
      {"vicreg", [=](bool odd, auto& comm) { vicreg(x, y, {.gamma = odd ? 1.0 : 2.0}, comm); }, "", ""},
      {"Tico", [=](bool odd, auto& comm) { Tico("tico", 3, f64, {.rho = odd ? 7.0 : 8.0})(x, y, {}, comm); }, "rho 8",
       "rho 7"},
      {"sigreg", [=](bool odd, auto& comm) { sigreg(x, {odd ? 2u : 3u}, {}, comm); }, "key 3/0", "key 2/0"},
      {"koleo", [=](bool odd, auto& comm) { koleo(x, {.neighbours = odd ? 1 : 2}, comm); }, "neighbours 2",
       "neighbours 1"},
      {"swav", [=](bool odd, auto& comm) { swav({x}, {y}, {.epsilon = odd ? 0.1 : 0.05}, comm); }, "", ""},
      {"msn", [=](bool odd, auto& comm) { msn({x}, y, x, {.temperature = odd ? 0.2 : 0.1}, comm); }, "temperature 0.1",
       "temperature 0.2"},
      {"Dino",
       [=](bool odd, auto& comm) {
         Dino("dino", 3, f64, {.teacher_temperature = odd ? 0.07 : 0.04})({x}, {x, y}, {}, comm);
       },
       "", ""},
      {"cosine_similarity", [=](bool odd, auto& comm) { cosine_similarity(x, y, odd ? Over::sum : Over::mean, comm); },
       "mean", "sum"},
      {"LookupFree",
       [=](bool odd, auto& comm) { LookupFree({.bits = 3, .scale = odd ? 2.0 : 1.0})(x, training, comm); }, "scale 1",
       "scale 2"},
      {"VectorQuantize",
       [=](bool odd, auto& comm) {
         VectorQuantize("vq", {{.dim = 3, .codes = 5}, odd ? 0.5 : 1.0}, f64)(x, training, comm);
       },
       "commitment weight 1", "commitment weight 0.5"},
      {"SimVq",
       [=](bool odd, auto& comm) {
         SimVq("vq", {.dim = 3, .codes = 5, .commitment_weight = odd ? 0.5 : 0.25}, f64)(x, training, comm);
       },
       "commitment weight 0.25", "commitment weight 0.5"},
      {"r2_score",  // or another metric with as many numbers
       [=](bool odd, auto& comm) { odd ? explained_variance(x, y, comm) : r2_score(x, y, comm); }, "'r2_score'",
       "'explained_variance'"},
  };
}

TEST_CASE("an option that differs between ranks is reported on all ranks before any data move") {
  for (const Difference& d : differences())
    for (const int n : {2, 3}) {
      INFO(d.loss << " on " << n << " ranks");
      std::string said = "nothing was noticed";
      try {
        run_ranks(n, [&](Communicator& comm) { d.call(number(comm) == n - 1, comm); });
      } catch (const Error& error) {
        said = error.what();
      }
      using Catch::Contains;
      CHECK_THAT(said, Contains("collective mismatch") && Contains(d.usual) && Contains(d.odd) &&
                           Contains("'" + std::string(d.loss) + "'") && Contains("tests/losses/test_loss_calls.cpp"));
    }
}

TEST_CASE("a long list of options is shortened, and ends in a checksum of the whole list") {
  const auto short_text = [](std::initializer_list<const char*> pieces) {
    ShortText text;
    for (const char* piece : pieces) text.add(piece);
    return std::string(text.characters().data());
  };
  CHECK(short_text({}).empty());
  CHECK(short_text({"temperature 0.07", ", ring"}) == "temperature 0.07, ring");
  CHECK(short_text({std::string(31, 'x').c_str()}) == std::string(31, 'x'));
  const std::string one = short_text({"lambda 25", ", mu 25", ", nu 1", ", gamma 1", ", epsilon 0.0001"}),
                    other = short_text({"lambda 25", ", mu 25", ", nu 1", ", gamma 1", ", epsilon 0.0002"});
  CHECK(one.starts_with("lambda 25, mu 25... "));
  CHECK(other.starts_with("lambda 25, mu 25... "));
  CHECK(one != other);
  std::set<std::string> all;
  for (int i = 0; i < 1000; ++i) all.insert(short_text({std::string(40, 'x').c_str(), std::to_string(i).c_str()}));
  CHECK(all.size() > 990);
  for (const std::string& text : all) CHECK(text.size() <= 31);
}

}  // namespace test_loss_calls

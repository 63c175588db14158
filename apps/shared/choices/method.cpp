// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/choices/method.h"

#include "apps/shared/choices/named_loss.h"
#include "weft/collectives/share.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/nn/norm_layers.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/assignment/dino.h"
#include "weft/losses/assignment/swav.h"
#include "weft/losses/common/division.h"
#include "weft/losses/common/precision.h"
#include "weft/losses/contrastive/info_nce.h"
#include "weft/losses/contrastive/memory_bank.h"
#include "weft/losses/contrastive/supcon.h"

namespace weft {
namespace {

// Parameters that follow others, and have no gradient. They start with the same values.
class Followers {
 public:
  Followers(const std::vector<Parameter*>& leaders, const std::vector<Parameter*>& followers)
      : leaders_(leaders), followers_(followers) {
    for (size_t i = 0; i < leaders.size(); ++i) followers[i]->value = leaders[i]->value.clone();
  }
  void follow(double momentum) {
    for (size_t i = 0; i < leaders_.size(); ++i)
      followers_[i]->value = (Var(followers_[i]->value) * momentum + Var(leaders_[i]->value) * (1 - momentum)).value();
  }

 private:
  const std::vector<Parameter*> leaders_, followers_;
};

// A network whose weights are an average of those of the trained one over the steps.
class Teacher : public Module {
 public:
  Teacher(const Trained& trained, double momentum)
      : network_(trained.another("teacher")),
        followers_(trained.parameters, network_->parameters()),
        momentum_(momentum) {
    for (Parameter* parameter : network_->parameters()) register_buffer(*parameter);
  }
  Var operator()(const Var& view) {
    const Tape::Pause without_gradients(view.tape());
    return detach((*network_)(view));
  }
  void follow() { followers_.follow(momentum_); }

 private:
  const std::unique_ptr<Sequential> network_;
  Followers followers_;
  const double momentum_;
};

class Pairs final : public Method {
 public:
  explicit Pairs(const MethodChoice& choice) : loss_(loss_named(choice.loss)), temperature_(choice.temperature) {}

  Features features(const Var& first, const Var& second, const Tensor&, const Network& network) override {
    return {network(first), network(second)};
  }
  Var share(const Features& views, const Pass& pass, Communicator& group) override {
    return loss_.share(views[0], views[1], temperature_, pass.key, group);
  }

 private:
  const NamedLoss& loss_;
  const double temperature_;
};

// The first view is to find the teacher's second among the keys of earlier batches (MoCo, arXiv 1911.05722).
class MomentumContrast final : public Method {
 public:
  MomentumContrast(const MethodChoice& choice, const Trained& trained, const Init& init)
      : teacher_(trained, choice.momentum),
        bank_("bank", choice.bank, trained.width, init),
        temperature_(choice.temperature) {
    register_module(teacher_);
    register_module(bank_);
  }
  Features features(const Var& first, const Var& second, const Tensor&, const Network& network) override {
    return {network(first), teacher_(second)};
  }
  Var share(const Features& views, const Pass& pass, Communicator& group) override {
    if (pass.training) {
      keys_ = views[1].value();
      group_ = &group;
    }
    return info_nce(views[0], views[1],
                    {.temperature = temperature_, .negatives = bank_.negatives(), .in_batch = false}, group);
  }
  void after_step() override {
    teacher_.follow();
    bank_.push(keys_, *group_);
  }

 private:
  Teacher teacher_;
  MemoryBank bank_;
  const double temperature_;
  Tensor keys_;  // of this step, in the order of the group's samples
  Communicator* group_ = nullptr;
};

// A predictor turns each view's features into the teacher's features of the other (BYOL, arXiv 2006.07733).
class Bootstrap final : public Method {
 public:
  Bootstrap(const MethodChoice& choice, const Trained& trained, const Init& init)
      : teacher_(trained, choice.momentum), predictor_("predictor") {
    predictor_.add<Linear>(trained.width, 256, init);
    predictor_.add<LayerNorm>(256, init, Activation{.op = Unary::Relu});
    predictor_.add<Linear>(256, trained.width, init);
    register_module(teacher_);
    register_module(predictor_);
  }
  Features features(const Var& first, const Var& second, const Tensor&, const Network& network) override {
    return {predictor_(network(first)), predictor_(network(second)), teacher_(first), teacher_(second)};
  }
  Var share(const Features& views, const Pass&, Communicator& group) override {
    const Division division(views[0].shape()[0], group);
    const auto alike = [&](size_t a, size_t b) {
      return sum(l2_normalize(precise(views[a])) * l2_normalize(precise(views[b])), 1);
    };
    return weft::share(sum(4 - 2 * (alike(0, 3) + alike(1, 2))), division.total, group);
  }
  void after_step() override { teacher_.follow(); }

 private:
  Teacher teacher_;
  Sequential predictor_;
};

// Views of the same class belong together (arXiv 2004.11362). The only method that uses labels.
class Supervised final : public Method {
 public:
  Supervised(const MethodChoice& choice, const Trained& trained)
      : classes_(trained.classes), temperature_(choice.temperature) {}

  Features features(const Var& first, const Var& second, const Tensor& labels, const Network& network) override {
    const Tensor as_features = labels.to(DType::f32).to(first.device());
    return {network(first), network(second), first.tape()->constant(as_features)};
  }
  Var share(const Features& views, const Pass&, Communicator& group) override {
    const Var labels = concat({views[2], views[2]}, 0);
    return supcon(concat({views[0], views[1]}, 0), labels.value().to(DType::i64), classes_,
                  {.temperature = temperature_}, group);
  }

 private:
  const int64_t classes_;
  const double temperature_;
};

// Cosines of features and prototypes.
class Prototypes final : public Module {
 public:
  Prototypes(const std::string& name, int64_t count, int64_t width, const Init& init)
      : weight(name + ".weight", init.normal(name + ".weight", {count, width}, 1)) {
    register_parameter(weight);
  }
  Var operator()(const Var& features) const {
    const Var directions = l2_normalize(bind(features, weight));
    return matmul(l2_normalize(features), directions, Transpose::no, Transpose::yes);
  }
  Parameter weight;
};

// Each view predicts which prototypes the other is assigned to, all prototypes equally often (SwAV, arXiv 2006.09882).
class Swapped final : public Method {
 public:
  Swapped(const MethodChoice& choice, const Trained& trained, const Init& init)
      : prototypes_("prototypes", choice.prototypes, trained.width, init), temperature_(choice.temperature) {
    register_module(prototypes_);
  }
  Features features(const Var& first, const Var& second, const Tensor&, const Network& network) override {
    return {prototypes_(network(first)), prototypes_(network(second))};
  }
  Var share(const Features& scores, const Pass&, Communicator& group) override {
    return swav({scores[0], scores[1]}, {}, {.temperature = temperature_}, group);
  }

 private:
  Prototypes prototypes_;
  const double temperature_;
};

// Each view predicts the teacher's prototypes for the other, centered and sharpened (DINO, arXiv 2104.14294).
class Distilled final : public Method {
 public:
  Distilled(const MethodChoice& choice, const Trained& trained, const Init& init)
      : teacher_(trained, choice.momentum),
        prototypes_("prototypes", choice.prototypes, trained.width, init),
        taught_("teacher.prototypes", choice.prototypes, trained.width, init),
        followers_(prototypes_.parameters(), taught_.parameters()),
        dino_("dino", choice.prototypes, init, {.student_temperature = choice.temperature}),
        momentum_(choice.momentum) {
    register_module(teacher_);
    register_module(prototypes_);
    register_buffer(taught_.weight);
    register_module(dino_);
  }
  Features features(const Var& first, const Var& second, const Tensor&, const Network& network) override {
    return {prototypes_(network(first)), prototypes_(network(second)), taught(first), taught(second)};
  }
  Var share(const Features& scores, const Pass& pass, Communicator& group) override {
    if (pass.training) group_ = &group;
    return dino_({scores[2], scores[3]}, {scores[0], scores[1]}, pass, group);
  }
  void after_step() override {
    dino_.update(*group_);
    teacher_.follow();
    followers_.follow(momentum_);
  }

 private:
  Var taught(const Var& view) {
    const Tape::Pause without_gradients(view.tape());
    return detach(taught_(teacher_(view)));
  }

  Teacher teacher_;
  Prototypes prototypes_, taught_;
  Followers followers_;
  Dino dino_;
  const double momentum_;
  Communicator* group_ = nullptr;
};

}  // namespace

std::vector<std::string> names_of_methods() { return {"pairs", "moco", "byol", "supcon", "swav", "dino"}; }

std::unique_ptr<Method> make_method(const MethodChoice& choice, const Trained& trained, const Init& init) {
  if (choice.name == "pairs") return std::make_unique<Pairs>(choice);
  if (choice.name == "moco") return std::make_unique<MomentumContrast>(choice, trained, init);
  if (choice.name == "byol") return std::make_unique<Bootstrap>(choice, trained, init);
  if (choice.name == "supcon") return std::make_unique<Supervised>(choice, trained);
  if (choice.name == "swav") return std::make_unique<Swapped>(choice, trained, init);
  require(choice.name == "dino", "there is no method called ", choice.name);
  return std::make_unique<Distilled>(choice, trained, init);
}

void check_method(const MethodChoice& choice, const Options& options, bool labelled) {
  if (choice.name == "supcon" && !labelled)
    throw WrongOption("--method supcon needs classes, and these pictures have none; take another --method");
  if (choice.name != "pairs" && options.training.stage == 3)
    throw WrongOption("--method " + choice.name + " needs whole parameters on every rank, and --zero 3 divides them; " +
                      "take --zero 0, 1 or 2");
  const bool teaches = choice.name == "moco" || choice.name == "byol" || choice.name == "dino";
  if (teaches && options.dtype == "bf16")
    throw WrongOption("--method " + choice.name + " averages weights over many steps, and --dtype bf16 would round " +
                      "the changes away; take --dtype f32");
}

}  // namespace weft

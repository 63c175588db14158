// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/state.h"

#include <cstring>
#include <numeric>
#include <sstream>

#include "weft/collectives/checks/agreement.h"
#include "weft/collectives/sharding.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

constexpr int64_t no_more = -1;

// The elements of one parameter in `values`, which has the elements `held` of flat memory.
Tensor piece(const Tensor& values, Range held, const Place& place) {
  const Range mine = intersection(place.range(), held);
  return mine.size() > 0 ? values.slice(mine.first - held.first, mine.last - held.first) : values.slice(0, 0);
}
// Does not write equal values: if ranks share the memory, another rank may have written them and may be reading.
void put(const Tensor& whole, Tensor into) {
  const bool equal =
      into.device() == Device::cpu && into.bytes() > 0 && std::memcmp(whole.data(), into.data(), into.bytes()) == 0;
  if (equal)
    into.mutate();
  else
    into.copy_from(whole);
}

std::string packed(const Metadata& words) {
  std::string text;
  for (const auto& [key, value] : words)
    for (const std::string& word : {key, value}) text += std::to_string(word.size()) + " " + word;
  return text;
}

Metadata unpacked(const std::string& text) {
  std::istringstream stream(text);
  const auto next = [&] {
    size_t size = 0;
    stream >> size;
    std::string word(size, '\0');
    stream.get();
    stream.read(word.data(), static_cast<std::streamsize>(size));
    return word;
  };
  Metadata words;
  while (stream.peek() != std::istringstream::traits_type::eof()) {
    std::string key = next();
    words[std::move(key)] = next();
  }
  return words;
}

}  // namespace

void TrainingState::add(const std::vector<Parameter*>& equal) {
  for (Parameter* parameter : equal)
    add(parameter->name, parameter->value.shape(), {parameter, {}, {0, parameter->value.size()}, nullptr});
}

void TrainingState::add(Trainer& training) {
  for (Optimizer* optimizer : training.optimizers()) add(*optimizer);
}

void TrainingState::add(Optimizer& optimizer, WeightAverage* average) {
  const FlatParameters& parameters = optimizer.parameters();
  const std::vector<Place>& places = parameters.layout().places();
  require(!average || average->flat().size() == optimizer.owned().size(), "training state: an average of ",
          average ? average->flat().size() : 0, " elements, where the optimizer owns ", optimizer.owned().size());
  const size_t first = tensors_.size();
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    Parameter& parameter = *place.parameter;
    const Shape& shape = parameter.value.shape();
    const auto of_memory = [&](const Tensor& flat, Range held) -> Part {
      const Range mine = intersection(place.range(), held);
      return {
          nullptr, piece(flat, held, place), {mine.first - place.begin, mine.last - place.begin}, parameter.sharding};
    };
    parameters.must_hold(static_cast<int64_t>(i));
    const bool divided = !parameter.value.shares_memory_with(parameters.view(static_cast<int64_t>(i)));  // by Sharded
    add(parameter.name, shape,
        divided ? of_memory(parameters.flat(), parameters.held())
                : Part{&parameter, {}, {0, place.size}, parameter.sharding});
    counts_.push_back({&optimizer, &parameter, tensors_.size()});
    add(parameter.name + ".steps", {}, {nullptr, Tensor({1}, DType::i64), {0, 1}, nullptr});
    if (average) add(parameter.name + ".average", shape, of_memory(average->flat(), optimizer.owned()));
  }
  for (const auto& [name, parameter, begin, values, shape, sharding] : optimizer.state())
    add(parameter->name + "." + name, shape, {nullptr, values, {begin, begin + values.size()}, sharding});
  agree_on_parts(first);
}

// `shape` is that of the tensor, or of this rank's slice of it.
void TrainingState::add(const std::string& name, const Shape& shape, Part part) {
  require(names_.insert(name).second, "training state: two tensors are called ", name);
  if (part.sharding && !(part.sharding->divided() && is_within(part.sharding->group, comm_))) part.sharding = nullptr;
  const auto* sliced = part.sharding.get();
  const DType dtype = (part.parameter ? part.parameter->value : part.values).dtype();
  tensors_.push_back({name, dtype, sliced ? shape.with(sliced->axis, total_rows(sliced->extents)) : shape});
  parts_.push_back(std::move(part));
}

// Ranks exchange what they hold. If several ranks hold an element, the first of them contributes it.
void TrainingState::agree_on_parts(size_t first) {
  Tensor mine({1, static_cast<int64_t>(tensors_.size() - first), 3}, DType::i64);
  auto* number = mine.mutate<int64_t>();
  for (size_t t = first; t < tensors_.size(); ++t)
    for (const int64_t n : {parts_[t].held.first, parts_[t].held.last,
                            parts_[t].sharding ? int64_t{parts_[t].sharding->group.rank().value} : int64_t{0}})
      *number++ = n;
  const Tensor all = comm_.all_gather(mine);
  for (size_t t = first; t < tensors_.size(); ++t) {
    Part& part = parts_[t];
    const int64_t size = tensors_[t].shape.size();
    std::vector<int64_t> ends(part.sharding ? part.sharding->extents.size() : 1, 0);  // by slice
    bool everywhere = true;
    for (int r = 0; r < comm_.size(); ++r) {
      const int64_t* theirs = all.data<int64_t>() + r * mine.size() + 3 * static_cast<int64_t>(t - first);
      const Range held = {theirs[0], theirs[1]};
      int64_t& end = ends.at(static_cast<size_t>(theirs[2]));
      everywhere = everywhere && held == Range{0, size};
      part.slices.push_back(theirs[2]);
      part.given.push_back(held.first <= end && end < held.last ? Range{end, held.last} : Range{end, end});
      end = part.given.back().last;
      part.once = part.once && part.given.back().size() == held.size();
    }
    if (everywhere && !part.sharding) part.given.clear();
    require(std::accumulate(ends.begin(), ends.end(), int64_t{0}) == size,
            "training state: what the ranks own is not all of ", tensors_[t].name, ", one part after the other");
  }
}

// Returns the whole tensor on the root, and an undefined one on other ranks if the tensor is divided.
Tensor TrainingState::gather(size_t tensor) {
  const Part& part = parts_[tensor];
  const Shape& shape = tensors_[tensor].shape;
  if (part.given.empty()) return part.parameter ? part.parameter->value : part.values.reshape(shape);
  Rows rows;
  for (const Range given : part.given) rows.push_back(given.size());
  const Range mine = part.given[static_cast<size_t>(comm_.rank().value)];
  const int64_t begin = mine.size() == 0 ? 0 : mine.first - part.held.first;
  const Tensor pieces = comm_.gather_v(part.flat().slice(begin, begin + mine.size()), rows, root_);
  return is_root() ? joined(tensor, pieces) : Tensor();
}

// Joins the pieces of all ranks, which are in rank order: first to slices, then to the whole.
Tensor TrainingState::joined(size_t tensor, const Tensor& pieces) const {
  const Part& part = parts_[tensor];
  const Shape& whole = tensors_[tensor].shape;
  if (!part.sharding) return pieces.reshape(whole);
  std::vector<std::vector<Var>> of_slices(part.sharding->extents.size());
  int64_t begin = 0;
  for (size_t r = 0; r < part.given.size(); ++r) {
    const int64_t end = begin + part.given[r].size();
    of_slices[static_cast<size_t>(part.slices[r])].push_back(pieces.slice(begin, end));
    begin = end;
  }
  std::vector<Var> slices;
  for (size_t s = 0; s < of_slices.size(); ++s)
    slices.push_back(reshape(concat(of_slices[s], 0), whole.with(part.sharding->axis, part.sharding->extents[s])));
  return concat(slices, part.sharding->axis).value();
}

// Writes this rank's part of `whole`, which only the root has.
void TrainingState::scatter(size_t tensor, const Tensor& whole) {
  const Part& part = parts_[tensor];
  const Shape& shape = tensors_[tensor].shape;
  const Tensor mine = part.flat();
  if (!part.given.empty() && !part.sharding && part.once) {
    Rows rows;
    for (const Range given : part.given) rows.push_back(given.size());
    const Tensor none({0}, mine.dtype(), mine.device());
    return put(comm_.scatter_v(is_root() ? whole.reshape({whole.size()}).to(mine.device()) : none, rows, root_), mine);
  }
  const bool all = part.given.empty();
  if (all && is_root()) put(whole.to(mine.device()).reshape(mine.shape()), mine);  // before other ranks compare with it
  const Tensor sent = is_root() ? whole.to(mine.device()) : Tensor(shape, mine.dtype(), mine.device());
  const Tensor got = comm_.broadcast(sent, root_), slice = part.sharding ? own_slice(got, *part.sharding) : got;
  const bool first = all ? is_root() : part.given[static_cast<size_t>(comm_.rank().value)].size() > 0;
  const auto take = [&] { put(slice.reshape({slice.size()}).slice(part.held.first, part.held.last), mine); };
  if (!all && first) take();
  if (!all) comm_.barrier();
  if (!first) take();
}

int64_t TrainingState::agree_on(int64_t tensor) {
  return *comm_.broadcast(Tensor::full({}, static_cast<double>(tensor), DType::i64), root_).data<int64_t>();
}

std::string TrainingState::from_root(const std::string& text) {
  return all_texts(is_root() ? text : "", comm_, Site::here())[static_cast<size_t>(root_.value)];
}

// The root runs `lead` and broadcasts the number of every tensor that it accesses; the other ranks `join` in each. So
// the root may stop at any point.
void TrainingState::follow_root(const std::function<void()>& lead, const std::function<void(size_t tensor)>& join) {
  std::string list;
  for (const auto& [name, dtype, shape] : tensors_) list += name + " " + text(dtype) + " " + text(shape) + "\n";
  const std::vector<std::string> lists = all_texts(list, comm_, Site::here());
  for (size_t r = 1; r < lists.size(); ++r)
    require(lists[r] == lists[0], "training state: rank ", r,
            " has added other tensors than rank 0, or in another order");
  std::exception_ptr failure;
  std::string reason;
  if (is_root()) {
    try {
      lead();
    } catch (const Fault&) {
      throw;  // a Fault ends all ranks
    } catch (const std::exception& error) {
      failure = std::current_exception();
      reason = error.what();
    }
    agree_on(no_more);
  } else {
    for (int64_t tensor; (tensor = agree_on(no_more)) != no_more;) join(static_cast<size_t>(tensor));
  }
  reason = from_root(reason);
  if (failure) std::rethrow_exception(failure);
  require(reason.empty(), reason);
}

void TrainingState::save(const std::function<void(const TensorSource& get)>& write) {
  for (const auto& [optimizer, parameter, tensor] : counts_)
    *parts_[tensor].values.mutate<int64_t>() = optimizer->steps(*parameter);
  const auto get = [this](size_t tensor) {
    require(tensor < tensors_.size(), "training state: tensor ", tensor, " of ", tensors_.size());
    agree_on(static_cast<int64_t>(tensor));
    return gather(tensor);
  };
  follow_root([&] { write(get); }, [this](size_t tensor) { gather(tensor); });
}

Metadata TrainingState::load(const std::function<Metadata(const TensorSink& put)>& read) {
  std::set<size_t> given;
  const auto put = [&](size_t tensor, const Tensor& whole) {
    require(tensor < tensors_.size(), "training state: tensor ", tensor, " of ", tensors_.size());
    const auto& [name, dtype, shape] = tensors_[tensor];
    require(whole.dtype() == dtype && whole.shape() == shape, "training state: ", name, " is ", dtype, " ", shape,
            ", not ", whole.dtype(), " ", whole.shape());
    given.insert(tensor);
    agree_on(static_cast<int64_t>(tensor));
    scatter(tensor, whole);
  };
  Metadata words;
  const auto lead = [&] {
    words = read(put);
    require(given.empty() || given.size() == tensors_.size(), "training state: only ", given.size(), " of ",
            tensors_.size(), " tensors were put in");
  };
  const auto join = [&](size_t tensor) {
    given.insert(tensor);
    scatter(tensor, {});
  };
  follow_root(lead, join);
  if (!given.empty())
    for (const auto& [optimizer, parameter, tensor] : counts_)
      optimizer->set_steps(*parameter, *parts_[tensor].values.data<int64_t>());
  return unpacked(from_root(packed(words)));
}

}  // namespace weft

#include "optim/state.h"

#include <cstring>
#include <sstream>

#include "collectives/agreement.h"

namespace weft {
namespace {

constexpr int64_t no_more = -1;

// In `values`, memory of the elements `held`: those of one parameter.
Tensor piece(const Tensor& values, Range held, const Place& place) {
  const Range mine = common(place.range(), held);
  return mine.size() > 0 ? values.slice(mine.first - held.first, mine.last - held.first) : values.slice(0, 0);
}

// Where ranks have memory in common, another one has written this already and may be reading it.
void put(const Tensor& whole, Tensor into) {
  const bool there =
      into.device() == Device::cpu && into.bytes() > 0 && std::memcmp(whole.data(), into.data(), into.bytes()) == 0;
  if (there)
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

void TrainingState::add(TensorOutline outline, Part part) {
  require(names_.insert(outline.name).second, "training state: two tensors are called ", outline.name);
  tensors_.push_back(std::move(outline));
  parts_.push_back(std::move(part));
}

void TrainingState::add(const std::vector<Parameter*>& equal) {
  for (Parameter* parameter : equal) {
    const Tensor& value = parameter->value;
    add({parameter->name, value.dtype(), value.shape()}, {parameter, {}, {}});
  }
}

// `values`: this rank's elements of a tensor that lies in flat memory as the parameter does.
void TrainingState::add(const std::string& name, const Place& place, const Tensor& values, const Ranges& owned) {
  Rows rows;
  for (const Range range : owned) rows.push_back(common(place.range(), range).size());
  add({name, values.dtype(), place.parameter->value.shape()}, {nullptr, values, std::move(rows)});
}

void TrainingState::add(Optimizer& optimizer, WeightAverage* average) {
  const FlatParameters& parameters = optimizer.parameters();
  const std::vector<Place>& places = parameters.layout().places();
  const Ranges owned = owned_ranges(optimizer);
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    const std::string& name = place.parameter->name;
    parameters.must_hold(static_cast<int64_t>(i));
    if (place.parameter->value.shares_memory_with(parameters.view(static_cast<int64_t>(i))))
      add({place.parameter});
    else  // it is divided, as of Sharded
      add(name, place, piece(parameters.flat(), parameters.held(), place), owned);
    counts_.push_back({&optimizer, place.parameter, tensors_.size()});
    add({name + ".steps", DType::i64, {}}, {nullptr, Tensor({}, DType::i64), {}});
  }
  add_slots(optimizer, owned);
  if (!average) return;
  require(average->flat().size() == optimizer.owned().size(), "training state: an average of ", average->flat().size(),
          " elements, where the optimizer owns ", optimizer.owned().size());
  for (const Place& place : places)
    add(place.parameter->name + ".average", place, piece(average->flat(), optimizer.owned(), place), owned);
}

// A rank knows of the slots that it has elements of; in common the ranks know all.
void TrainingState::add_slots(Optimizer& optimizer, const Ranges& owned) {
  const FlatLayout& layout = optimizer.parameters().layout();
  std::map<std::pair<int64_t, std::string>, Tensor> slots;
  std::string mine;
  for (const Optimizer::State& state : optimizer.state()) {
    const int64_t place = layout.find(*state.parameter);
    slots[{place, state.name}] = state.values;
    mine += std::to_string(place) + " " + state.name + "\n";
  }
  for (const std::string& theirs : all_texts(mine, comm_, Site::here())) {
    std::istringstream list(theirs);
    std::string name;
    for (int64_t place; list >> place >> name;) slots.try_emplace({place, name}, optimizer.values().slice(0, 0));
  }
  for (const auto& [slot, values] : slots) {
    const Place& place = layout.places().at(static_cast<size_t>(slot.first));
    add(place.parameter->name + "." + slot.second, place, values, owned);
  }
}

// Of every rank, or none if each rank owns everything.
TrainingState::Ranges TrainingState::owned_ranges(const Optimizer& optimizer) {
  const Range all = optimizer.parameters().layout().all(), mine = optimizer.owned();
  Tensor bounds({1, 2}, DType::i64);
  bounds.mutate<int64_t>()[0] = mine.first;
  bounds.mutate<int64_t>()[1] = mine.last;
  const Tensor of_all = comm_.all_gather(bounds);
  Ranges owned;
  bool whole = true, tiled = true;
  int64_t end = 0;
  for (int64_t r = 0; r < comm_.size(); ++r) {
    owned.push_back({of_all.data<int64_t>()[2 * r], of_all.data<int64_t>()[2 * r + 1]});
    whole = whole && owned.back() == all;
    tiled = tiled && owned.back().first == end;
    end = owned.back().last;
  }
  require(whole || (tiled && end == all.last), "training state: what the ranks own is not all of ", all.last,
          " elements, one part after the other");
  return whole ? Ranges() : owned;
}

// On the root; the others get nothing.
Tensor TrainingState::gather(size_t tensor) {
  const auto& [parameter, values, rows] = parts_[tensor];
  if (parameter) return parameter->value;
  const Tensor all = rows.empty() ? values : comm_.gather_v(values, rows, root_);
  return is_root() ? all.reshape(tensors_[tensor].shape) : Tensor();
}

// Of `whole`, which the root has.
void TrainingState::spread(size_t tensor, const Tensor& whole) {
  const auto& [parameter, values, rows] = parts_[tensor];
  const Tensor& mine = parameter ? parameter->value : values;
  const Shape flat = {tensors_[tensor].shape.size()};
  if (!rows.empty()) {
    const Tensor none({0}, mine.dtype(), mine.device());
    return put(comm_.scatter_v(is_root() ? whole.reshape(flat).to(mine.device()) : none, rows, root_), mine);
  }
  if (is_root()) put(whole.to(mine.device()), mine.reshape(whole.shape()));  // before the others see it
  const Tensor all = comm_.broadcast(mine.reshape(flat), root_);
  if (!is_root()) put(all, mine.reshape(flat));
}

int64_t TrainingState::agree_on(int64_t tensor) {
  return *comm_.broadcast(Tensor::full({}, static_cast<double>(tensor), DType::i64), root_).data<int64_t>();
}

std::string TrainingState::from_root(const std::string& text) {
  return all_texts(is_root() ? text : "", comm_, Site::here())[static_cast<size_t>(root_.value)];
}

// The root leads, and says each time which tensor is next, so that it may stop anywhere.
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
      throw;  // it ends all ranks
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
    spread(tensor, whole);
  };
  Metadata words;
  const auto lead = [&] {
    words = read(put);
    require(given.empty() || given.size() == tensors_.size(), "training state: only ", given.size(), " of ",
            tensors_.size(), " tensors were put in");
  };
  const auto join = [&](size_t tensor) {
    given.insert(tensor);
    spread(tensor, {});
  };
  follow_root(lead, join);
  if (!given.empty())
    for (const auto& [optimizer, parameter, tensor] : counts_)
      optimizer->set_steps(*parameter, *parts_[tensor].values.data<int64_t>());
  return unpacked(from_root(packed(words)));
}

}  // namespace weft

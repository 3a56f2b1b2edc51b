// SPDX-License-Identifier: Apache-2.0
#include "runtime/tflite/tflite_options.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace atollrt {
namespace {

using flatbuffers::FlatBufferBuilder;

// ---- Values -------------------------------------------------------------------------------------

const char* KindOf(tflite::Activation) { return "fused activation"; }
const char* KindOf(tflite::Padding) { return "padding"; }
const char* KindOf(tflite::MirrorPadMode) { return "mirror mode"; }

// Sets `out` to the value of the field `name`.
template <typename Stored, typename Member>
Status ReadValue(const char* name, Stored stored, Member* out) {
  if constexpr (std::is_enum_v<Stored>) {
    if (stored < Stored::MIN || stored > Stored::MAX) {
      return CorruptModel("%s %d does not exist", KindOf(stored), static_cast<int>(stored));
    }
    *out = static_cast<Member>(stored);
  } else if constexpr (std::is_same_v<Member, std::string>) {
    if (stored != nullptr) *out = stored->str();
  } else if constexpr (std::is_pointer_v<Stored>) {
    constexpr uint32_t kMaxListedCount = 64;  // more than any tensor has dimensions
    if (stored == nullptr) return Status();
    if (stored->size() > kMaxListedCount) {
      return CorruptModel("%s has %u numbers, at most %u make sense", name, stored->size(),
                          kMaxListedCount);
    }
    out->assign(stored->begin(), stored->end());
  } else {
    *out = stored;
    if constexpr (std::is_floating_point_v<Stored>) {
      if (!std::isfinite(stored)) return CorruptModel("%s is not finite", name);
    }
  }
  return Status();
}

// As a field holds it: strings and lists are stored now, before the table.
template <typename Member, typename Builder, typename Argument>
Argument StoreValue(const Member& value, void (Builder::*)(Argument), FlatBufferBuilder* fbb) {
  if constexpr (std::is_same_v<Member, std::string>) {
    return fbb->CreateString(value);
  } else if constexpr (std::is_class_v<Member>) {
    return fbb->CreateVector(value);
  } else {
    return static_cast<Argument>(value);
  }
}

// ---- What follows from the tensors of a node ----------------------------------------------------

// nullptr if the list has no such position, or no tensor there.
const Tensor* TensorAt(const Graph& graph, const std::vector<int32_t>& tensors) {
  const bool is_there =
      !tensors.empty() && tensors[0] >= 0 && static_cast<size_t>(tensors[0]) < graph.tensors.size();
  return is_there ? &graph.tensors[static_cast<size_t>(tensors[0])] : nullptr;
}

int8_t TypeOf(const Tensor* tensor) {
  return static_cast<int8_t>(tensor == nullptr ? DataType::kFloat32 : tensor->type);
}
int8_t InputType(const Graph& graph, const Node& node) {
  return TypeOf(TensorAt(graph, node.inputs));
}
int8_t OutputType(const Graph& graph, const Node& node) {
  return TypeOf(TensorAt(graph, node.outputs));
}

int32_t ChannelsOf(const Tensor* tensor) {
  return tensor == nullptr || tensor->shape.empty() ? 0 : tensor->shape.back();
}
// Output channels per input channel; readers derive it from the shapes, too.
int32_t DepthMultiplier(const Graph& graph, const Node& node) {
  const int32_t input = ChannelsOf(TensorAt(graph, node.inputs));
  return input <= 0 ? 1 : std::max(1, ChannelsOf(TensorAt(graph, node.outputs)) / input);
}

// ---- Fields -------------------------------------------------------------------------------------

// A field of a table, and the member of the options that has its value.
template <typename Stored, typename Value, typename Builder, typename Argument, typename Options,
          typename Member>
struct TableField {
  const char* name;
  Value (Stored::*get)() const;
  void (Builder::*add)(Argument);
  Member Options::*member;
};
template <typename Stored, typename Value, typename Builder, typename Argument, typename Options,
          typename Member>
TableField(const char*, Value (Stored::*)() const, void (Builder::*)(Argument), Member Options::*)
    -> TableField<Stored, Value, Builder, Argument, Options, Member>;

// One that nobody reads.
template <typename Builder, typename Argument>
struct Derived {
  void (Builder::*add)(Argument);
  Argument (*value)(const Graph& graph, const Node& node);
};
template <typename Builder, typename Argument>
Derived(void (Builder::*)(Argument), Argument (*)(const Graph&, const Node&))
    -> Derived<Builder, Argument>;

enum class Presence { kOptional, kRequired };

template <typename Stored, typename Options>
struct Table;
#define ATOLL_FIELD(stored, member) \
  TableField { #stored, &S::stored, &S::Builder::add_##stored, &O::member }
#define ATOLL_DERIVED(stored, Value) \
  Derived { &S::Builder::add_##stored, &Value }
#define ATOLL_TABLE(Stored, Options, presence, ...)                                \
  template <>                                                                      \
  struct Table<tflite::Stored, Options> {                                          \
    using S = tflite::Stored;                                                      \
    using O = Options;                                                             \
    static constexpr Presence kPresence = Presence::presence;                      \
    static constexpr auto kFields = std::tuple{__VA_ARGS__};                       \
    using Places = std::make_index_sequence<std::tuple_size_v<decltype(kFields)>>; \
  };
#include "runtime/tflite/tflite_options.inc"
#undef ATOLL_TABLE
#undef ATOLL_DERIVED
#undef ATOLL_FIELD

// A field by its place in the list of T, which is a Table.
template <typename T, size_t kPlace>
Status ReadField(const typename T::S& stored, typename T::O* options) {
  constexpr auto kField = std::get<kPlace>(T::kFields);
  if constexpr (requires { kField.get; }) {
    return ReadValue(kField.name, (stored.*kField.get)(), &(options->*kField.member));
  } else {
    return Status();
  }
}

template <typename T, size_t kPlace>
auto StoreField(const Graph& graph, const Node& node, const typename T::O* options,
                FlatBufferBuilder* fbb) {
  constexpr auto kField = std::get<kPlace>(T::kFields);
  if constexpr (requires { kField.value; }) {
    return kField.value(graph, node);
  } else {
    return StoreValue(options->*kField.member, kField.add, fbb);
  }
}

template <typename T, size_t kPlace, size_t kBytes, typename Builder, typename Value>
void AddField(Value value, Builder* builder) {
  constexpr auto kField = std::get<kPlace>(T::kFields);
  if constexpr (sizeof(Value) == kBytes) (builder->*kField.add)(value);
}

// ---- Tables -------------------------------------------------------------------------------------

template <typename Stored>
Status Check(const Stored&) {
  return Status();
}
Status Check(const tflite::FullyConnectedOptions& stored) {
  if (stored.weights_format() == tflite::WeightsFormat::Default) return Status();
  return Unsupported("weights format %d; only the default one is read",
                     static_cast<int>(stored.weights_format()));
}

template <typename T, size_t... kPlaces>
Status ReadTable(const tflite::Operator& op, Node* node, std::index_sequence<kPlaces...>) {
  if constexpr (!std::is_same_v<typename T::O, NoOptions>) {
    auto& options = node->options.emplace<typename T::O>();
    if (const auto* const stored = op.builtin_options_as<typename T::S>()) {
      Status status = Check(*stored);
      (void)(status.ok() && (... && (status = ReadField<T, kPlaces>(*stored, &options)).ok()));
      ATOLL_RETURN_IF_ERROR(status);
    } else if (T::kPresence == Presence::kRequired) {
      return CorruptModel("its options are missing or of another operator");
    }
  }
  return Status();
}

// The last field first, and all of four bytes before those of one, as flatc's own functions have
// it: so there are no gaps.
template <typename T, size_t... kPlaces>
Result<StoredOptions> WriteTable(const Graph& graph, const Node& node, FlatBufferBuilder* fbb,
                                 std::index_sequence<kPlaces...>) {
  const auto* const options = std::get_if<typename T::O>(&node.options);
  if constexpr (!std::is_same_v<typename T::O, NoOptions>) {
    if (std::holds_alternative<NoOptions>(node.options)) return StoredOptions();
    if (options == nullptr) return InvalidArgument("its options are those of another operator");
  }
  constexpr size_t kLast = sizeof...(kPlaces) - 1;
  const std::tuple values{StoreField<T, kLast - kPlaces>(graph, node, options, fbb)...};
  typename T::S::Builder builder(*fbb);
  (AddField<T, kLast - kPlaces, 4>(std::get<kPlaces>(values), &builder), ...);
  (AddField<T, kLast - kPlaces, 1>(std::get<kPlaces>(values), &builder), ...);
  return StoredOptions{tflite::BuiltinOptionsTraits<typename T::S>::enum_value,
                       builder.Finish().Union()};
}

}  // namespace

Status ReadTfliteOptions(const tflite::Operator& op, Node* node) {
  switch (node->type) {
#define ATOLL_OP_WITH(name, number, version, types, Infer, Prepare, Options, Stored) \
  case OpType::k##name: {                                                            \
    using T = Table<tflite::Stored, Options>;                                        \
    return ReadTable<T>(op, node, T::Places());                                      \
  }
#define ATOLL_OP_APART_WITH ATOLL_OP_WITH
#include "runtime/graph/operators.inc"
    default:
      return Status();
  }
}

Result<StoredOptions> WriteTfliteOptions(const Graph& graph, const Node& node,
                                         FlatBufferBuilder* fbb) {
  switch (node.type) {
#define ATOLL_OP_WITH(name, number, version, types, Infer, Prepare, Options, Stored) \
  case OpType::k##name: {                                                            \
    using T = Table<tflite::Stored, Options>;                                        \
    return WriteTable<T>(graph, node, fbb, T::Places());                             \
  }
#define ATOLL_OP_APART_WITH ATOLL_OP_WITH
#include "runtime/graph/operators.inc"
    default:
      return StoredOptions();
  }
}

}  // namespace atollrt

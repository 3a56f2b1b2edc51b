// SPDX-License-Identifier: Apache-2.0
//
// What the C interfaces of runtime/ and delegate/ share: status conversion, options of other
// versions and the layouts of the handles. Not installed.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "atoll/runtime.h"
#include "runtime/interpreter.h"

namespace atollrt {

// Remembers the message for AtollLastError and gives the code.
AtollStatus ToC(const Status& status);
AtollStatus NullArgument(const char* name);
// NullArgument for the first argument that is nullptr, else ATOLL_OK. `names` are theirs, as the
// preprocessor writes a list.
AtollStatus CheckNotNull(const char* names, std::initializer_list<const void*> arguments);
#define ATOLL_RETURN_IF_NULL(...)                                                         \
  do {                                                                                    \
    const AtollStatus atoll_null_ = ::atollrt::CheckNotNull(#__VA_ARGS__, {__VA_ARGS__}); \
    if (atoll_null_ != ATOLL_OK) return atoll_null_;                                      \
  } while (false)

// Whether a handle is there, for functions that return no status: AtollLastError says if it is not.
template <typename T>
bool Has(const T* handle, const char* name) {
  if (handle != nullptr) return true;
  NullArgument(name);
  return false;
}
// Whether there is an element `index` of `count`; AtollLastError says if there is none.
bool HasIndex(const char* what, int32_t index, size_t count);

// Copies the options of a caller, a struct that begins with its size, over `options`, which has
// `size` bytes and the defaults. The caller's ends after its size, or after one of the fields that
// end at `ends`, or has more that is zero; else kInvalidArgument, which names the struct and the
// macro that initialises it.
Status ReadOptions(const char* name, const char* macro, const void* given,
                   std::initializer_list<size_t> ends, void* options, size_t size);

// The place behind a field of a struct.
#define ATOLL_END_OF(Struct, field) (offsetof(Struct, field) + sizeof(Struct::field))

}  // namespace atollrt

// A tensor as callers see it: an index, and an interpreter or, before there is one, a model.
struct AtollTensor {
  AtollInterpreter* owner = nullptr;
  int32_t index = 0;
  const atollrt::Model* model = nullptr;  // only without owner

  const atollrt::Tensor& tensor() const;
};

// The handle behind AtollModel.
struct AtollModel {
  std::shared_ptr<const atollrt::Model> model;
  // The tensors of each signature, inputs first; AtollSignatureInfo points at them.
  std::vector<std::vector<AtollSignatureTensor>> signature_tensors;
  std::vector<AtollTensor> tensors;  // all of the first graph, by index
};

// The handle behind AtollInterpreter.
struct AtollInterpreter {
  std::shared_ptr<const atollrt::Model> model;  // as it came, before any input was resized
  atollrt::InterpreterOptions options;
  // The file that runs in its place, by the name that `interpreter` keeps; nullptr: it runs itself.
  const char* substitute = nullptr;
  // Outlives `interpreter`, whoever deletes its handle.
  std::shared_ptr<atollrt::Delegate> delegate;
  std::unique_ptr<atollrt::Interpreter> interpreter;
  // Shapes that inputs shall have, and whether `interpreter` has them.
  std::vector<atollrt::InputShape> input_shapes;
  bool is_ready = true;
  std::vector<AtollTensor> tensors;                   // all of the graph, by index
  std::vector<std::string> node_names;                // owns what AtollNodeInfo::op points at
  std::vector<std::vector<AtollMemoryBlock>> memory;  // of each partition
};

inline const atollrt::Tensor& AtollTensor::tensor() const {
  return (owner != nullptr ? owner->interpreter->graph() : model->graph()).tensors[index];
}

// The handle behind AtollDelegate; delegate/c_api.cc derives its own from it.
struct AtollDelegate {
  virtual ~AtollDelegate() = default;
  // Shared with the interpreters that run on it. nullptr: the CPU.
  std::shared_ptr<atollrt::Delegate> delegate;
};

// The handle behind AtollBuffer.
struct AtollBuffer {
  std::shared_ptr<void> owner;  // shared with the interpreters that use it
  std::span<uint8_t> bytes;
  bool for_device = false;        // which must reach it
  atollrt::HostMemory whole{{}};  // of which it is a part, if others can map that
};

// SPDX-License-Identifier: Apache-2.0
//
// Atoll for C++20: the C interface of atoll/runtime.h and atoll/delegate.h with owners that clean
// up and results that cannot be overlooked. Header only, without exceptions and RTTI, and no more
// than a layer: what functions do and how they fail is said there, and get() leads back to it.
//
//   auto model = atollpp::Model::FromFile("model.tflite");
//   if (!model) return Complain(model.message());
//   auto device = atollpp::Delegate::Open("auto");
//   if (!device) return Complain(device.message());
//   auto interpreter = atollpp::Interpreter::Create(*model, *device);
//   if (!interpreter) return Complain(interpreter.message());
//   std::ranges::copy(pixels, interpreter->input(0).values<uint8_t>().begin());
//   if (atollpp::Status status = interpreter->Invoke(); !status) return Complain(status.message());
//   for (const float score : interpreter->output(0).RealValues()) ...
//
// Owners can be moved. Models and delegates can be copied, too: copies mean the same object, and an
// interpreter holds on to the delegate that it runs on, so none is deleted too early. Threads as in
// atoll/runtime.h. (C's <stdlib.h> has a function atoll, so no namespace can be called that.)
#ifndef ATOLL_ATOLL_HPP_
#define ATOLL_ATOLL_HPP_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/runtime.h"

namespace atollpp {

// Whether a call succeeded, and else why not, in a sentence.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(AtollStatus code, std::string message) : code_(code), message_(std::move(message)) {}
  // Of a call of the C interface that has just been made on this thread.
  static Status Of(AtollStatus code) {
    return code == ATOLL_OK ? Status() : Status(code, AtollLastError());
  }

  explicit operator bool() const { return code_ == ATOLL_OK; }
  AtollStatus code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  AtollStatus code_ = ATOLL_OK;
  std::string message_;
};

// A T, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status failure) : status_(std::move(failure)) { assert(!status_); }

  explicit operator bool() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  AtollStatus code() const { return status_.code(); }
  const std::string& message() const { return status_.message(); }

  // Only if there is a value.
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

namespace internal {

// The AtollType that holds a T, for the types that tensors can have.
template <typename T>
inline constexpr int kTypeOf = -1;
template <>
inline constexpr int kTypeOf<float> = ATOLL_FLOAT32;
template <>
inline constexpr int kTypeOf<int32_t> = ATOLL_INT32;
template <>
inline constexpr int kTypeOf<uint8_t> = ATOLL_UINT8;
template <>
inline constexpr int kTypeOf<int64_t> = ATOLL_INT64;
template <>
inline constexpr int kTypeOf<bool> = ATOLL_BOOL;
template <>
inline constexpr int kTypeOf<int16_t> = ATOLL_INT16;
template <>
inline constexpr int kTypeOf<int8_t> = ATOLL_INT8;
template <>
inline constexpr int kTypeOf<uint32_t> = ATOLL_UINT32;

}  // namespace internal

// A tensor of an interpreter, which must outlive it; without one (an index out of range) it is
// false, and nothing else may be asked of it.
class ConstTensor {
 public:
  explicit ConstTensor(const AtollTensor* tensor) : tensor_(tensor) {}

  explicit operator bool() const { return tensor_ != nullptr; }
  const AtollTensor* get() const { return tensor_; }
  std::string name() const { return AtollTensorName(tensor_); }
  AtollType type() const { return AtollTensorType(tensor_); }
  AtollQuantization quantization() const { return AtollTensorQuantization(tensor_); }
  std::vector<int32_t> shape() const {
    std::vector<int32_t> shape(static_cast<size_t>(AtollTensorNumDims(tensor_)));
    for (size_t i = 0; i < shape.size(); ++i) {
      shape[i] = AtollTensorDim(tensor_, static_cast<int32_t>(i));
    }
    return shape;
  }

  // Its bytes, and its values, row-major; empty if the tensor has another type than T.
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(AtollTensorConstData(tensor_)),
            AtollTensorByteSize(tensor_)};
  }
  template <typename T>
  std::span<const T> values() const {
    static_assert(internal::kTypeOf<T> >= 0, "tensors hold no values of this type");
    if (internal::kTypeOf<T> != static_cast<int>(type())) return {};
    return {static_cast<const T*>(AtollTensorConstData(tensor_)),
            AtollTensorByteSize(tensor_) / sizeof(T)};
  }

  // What the values stand for: scale * (value - zero point) of int8, uint8 and int16 (the values
  // themselves without a scale), float32 as it is. Empty for other types.
  std::vector<float> RealValues() const {
    switch (type()) {
      case ATOLL_FLOAT32: {
        const std::span<const float> all = values<float>();
        return {all.begin(), all.end()};
      }
      case ATOLL_INT8:
        return Dequantized(values<int8_t>());
      case ATOLL_UINT8:
        return Dequantized(values<uint8_t>());
      case ATOLL_INT16:
        return Dequantized(values<int16_t>());
      default:
        return {};
    }
  }

 private:
  template <typename T>
  std::vector<float> Dequantized(std::span<const T> stored) const {
    const AtollQuantization q = quantization();
    std::vector<float> real;
    real.reserve(stored.size());
    for (const T value : stored) {
      real.push_back(q.scale == 0 ? static_cast<float>(value)
                                  : q.scale * static_cast<float>(value - q.zero_point));
    }
    return real;
  }

  const AtollTensor* tensor_;
};

// The same, to write into.
class Tensor : public ConstTensor {
 public:
  explicit Tensor(AtollTensor* tensor) : ConstTensor(tensor), writable_(tensor) {}

  AtollTensor* get() const { return writable_; }
  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(AtollTensorData(writable_)), AtollTensorByteSize(writable_)};
  }
  template <typename T>
  std::span<T> values() const {
    const std::span<const T> all = ConstTensor::values<T>();
    return {const_cast<T*>(all.data()), all.size()};
  }

 private:
  AtollTensor* writable_;
};

class Model {
 public:
  static Result<Model> FromFile(const std::string& path) {
    return Create(
        [&](AtollModel** model) { return AtollModelCreateFromFile(path.c_str(), model); });
  }
  // Copies the bytes.
  static Result<Model> FromBuffer(std::span<const std::byte> bytes) {
    return Create([&](AtollModel** model) {
      return AtollModelCreateFromBuffer(bytes.data(), bytes.size(), model);
    });
  }
  // With other shapes of inputs than the file has.
  static Result<Model> FromFile(const std::string& path, const AtollModelOptions& options) {
    return Create([&](AtollModel** model) {
      return AtollModelCreateFromFileWithOptions(path.c_str(), &options, model);
    });
  }

  bool HasOperator(const std::string& op) const {
    return AtollModelHasOperator(get(), op.c_str()) != 0;
  }
  AtollModel* get() const { return model_.get(); }

 private:
  template <typename Function>
  static Result<Model> Create(const Function& create) {
    AtollModel* model = nullptr;
    const AtollStatus status = create(&model);
    if (status != ATOLL_OK) return Status::Of(status);
    return Model(model);
  }
  explicit Model(AtollModel* model) : model_(model, AtollModelDelete) {}

  std::shared_ptr<AtollModel> model_;
};

// A device that models run on. One without a device, which is what the constructor makes, stands
// for the CPU.
class Delegate {
 public:
  Delegate() = default;
  // "auto", "emu", "usb": AtollDelegateOptions says which there are. "cpu" is the CPU.
  static Result<Delegate> Open(const std::string& device) {
    if (device == "cpu") return Delegate();
    AtollDelegateOptions options = ATOLL_DELEGATE_OPTIONS_INIT;
    options.device = device.c_str();
    return Open(options);
  }
  static Result<Delegate> Open(const AtollDelegateOptions& options) {
    AtollDelegate* delegate = nullptr;
    const AtollStatus status = AtollDelegateCreate(&options, &delegate);
    if (status != ATOLL_OK) return Status::Of(status);
    return Delegate(delegate);
  }

  // Strings live as long as the device is open. ATOLL_INVALID_ARGUMENT of the CPU.
  Result<AtollDeviceInfo> info() const {
    AtollDeviceInfo info = {};
    const AtollStatus status = AtollDelegateGetDeviceInfo(get(), &info);
    if (status != ATOLL_OK) return Status::Of(status);
    return info;
  }
  AtollDelegate* get() const { return delegate_.get(); }  // null: the CPU

 private:
  explicit Delegate(AtollDelegate* delegate) : delegate_(delegate, AtollDelegateDelete) {}

  std::shared_ptr<AtollDelegate> delegate_;
};

class Interpreter {
 public:
  Interpreter(Interpreter&&) = default;
  Interpreter& operator=(Interpreter&& other) noexcept {
    std::swap(delegate_, other.delegate_);
    std::swap(interpreter_, other.interpreter_);
    return *this;
  }

  // `options.delegate` is not looked at: `delegate` says where the model runs. The model may go
  // afterwards.
  static Result<Interpreter> Create(
      const Model& model, const Delegate& delegate = {},
      AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT) {
    options.delegate = delegate.get();
    AtollInterpreter* interpreter = nullptr;
    const AtollStatus status = AtollInterpreterCreate(model.get(), &options, &interpreter);
    if (status != ATOLL_OK) return Status::Of(status);
    return Interpreter(interpreter, delegate);
  }

  Status Invoke() { return Status::Of(AtollInterpreterInvoke(get())); }
  // On a thread of the interpreter's; exactly one Wait must follow.
  Status InvokeAsync() { return Status::Of(AtollInterpreterInvokeAsync(get())); }
  Status Wait() { return Status::Of(AtollInterpreterWait(get())); }
  Status Cancel() { return Status::Of(AtollInterpreterCancel(get())); }
  Status ResetVariableTensors() { return Status::Of(AtollInterpreterResetVariableTensors(get())); }

  int32_t input_count() const { return AtollInterpreterGetInputTensorCount(get()); }
  int32_t output_count() const { return AtollInterpreterGetOutputTensorCount(get()); }
  Tensor input(int32_t index) { return Tensor(AtollInterpreterGetInputTensor(get(), index)); }
  ConstTensor output(int32_t index) const {
    return ConstTensor(AtollInterpreterGetOutputTensor(get(), index));
  }
  AtollInterpreter* get() const { return interpreter_.get(); }

 private:
  struct Delete {
    void operator()(AtollInterpreter* interpreter) const { AtollInterpreterDelete(interpreter); }
  };
  Interpreter(AtollInterpreter* interpreter, Delegate delegate)
      : delegate_(std::move(delegate)), interpreter_(interpreter) {}

  Delegate delegate_;  // is needed until the interpreter has gone
  std::unique_ptr<AtollInterpreter, Delete> interpreter_;
};

}  // namespace atollpp

#endif  // ATOLL_ATOLL_HPP_

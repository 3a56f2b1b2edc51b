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
//   if (atollpp::Status status = interpreter->input(0).CopyFrom<int8_t>(pixels); !status) {
//     return Complain(status.message());
//   }
//   if (atollpp::Status status = interpreter->Invoke(); !status) return Complain(status.message());
//   for (const float score : interpreter->output(0).RealValues()) ...
//
// What is used although it is not there ends the program with a sentence on stderr: the value of a
// Result that failed, the values of a tensor that has none or others. Ask first: both are false
// then, and have the sentence.
//
// Owners can be moved. Models and delegates can be copied, too: copies mean the same object, and an
// interpreter holds on to the delegate that it runs on, so none is deleted too early. Threads as in
// atoll/runtime.h. (C's <stdlib.h> has a function atoll, so no namespace can be called that.)
#ifndef ATOLL_ATOLL_HPP_
#define ATOLL_ATOLL_HPP_

#if __cplusplus < 202002L
#error "atoll/atoll.hpp needs C++20: -std=c++20, or target_compile_features(... cxx_std_20)"
#endif

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/runtime.h"

namespace atollpp {

namespace internal {

[[noreturn]] inline void Die(const std::string& why) {
  std::fprintf(stderr, "atoll: used without looking whether it is there: %s\n", why.c_str());
  std::abort();
}

}  // namespace internal

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
  Result(Status failure) : status_(std::move(failure)) {
    if (status_) internal::Die("a failure that is none");
  }

  explicit operator bool() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  AtollStatus code() const { return status_.code(); }
  const std::string& message() const { return status_.message(); }

  // Only if there is a value.
  T& operator*() & { return Checked(), *value_; }
  const T& operator*() const& { return Checked(), *value_; }
  T&& operator*() && { return Checked(), *std::move(value_); }
  T* operator->() { return Checked(), &*value_; }
  const T* operator->() const { return Checked(), &*value_; }

 private:
  void Checked() const {
    if (!value_) internal::Die(message());
  }

  std::optional<T> value_;
  Status status_;
};

namespace internal {

// The AtollType that holds a T; -1: tensors have no such type.
template <typename T>
inline constexpr int kTypeOf = std::is_same_v<T, float>      ? ATOLL_FLOAT32
                               : std::is_same_v<T, int32_t>  ? ATOLL_INT32
                               : std::is_same_v<T, uint8_t>  ? ATOLL_UINT8
                               : std::is_same_v<T, int64_t>  ? ATOLL_INT64
                               : std::is_same_v<T, bool>     ? ATOLL_BOOL
                               : std::is_same_v<T, int16_t>  ? ATOLL_INT16
                               : std::is_same_v<T, int8_t>   ? ATOLL_INT8
                               : std::is_same_v<T, uint32_t> ? ATOLL_UINT32
                                                             : -1;

}  // namespace internal

// Values of a tensor, row-major: a range that can be used wherever a span can, if it is true. Of a
// tensor that is not there, is of another type or has no memory of its own it is false and empty(),
// and everything else ends the program with the sentence.
template <typename T>
class [[nodiscard]] Values {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  Values(std::span<T> values) : values_(values) {}
  Values(Status failure) : status_(std::move(failure)) {}

  explicit operator bool() const { return static_cast<bool>(status_); }
  const Status& status() const { return status_; }
  bool empty() const { return values_.empty(); }

  T* begin() const { return span().data(); }
  T* end() const { return begin() + size(); }
  T* data() const { return span().data(); }
  size_t size() const { return span().size(); }
  T& operator[](size_t index) const { return span()[index]; }
  std::span<T> span() const {
    if (!status_) internal::Die(status_.message());
    return values_;
  }

 private:
  std::span<T> values_;
  Status status_;
};

// A tensor of an interpreter, which must outlive it; without one (an index out of range) it is
// false, has no name, no shape and the type ATOLL_NO_TYPE.
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

  // Its bytes, and its values; those are false if the tensor has another type than T.
  Values<const std::byte> bytes() const {
    return Of<const std::byte>(AtollTensorConstData(tensor_));
  }
  template <typename T>
  Values<const T> values() const {
    if (Status status = CheckType<T>(); !status) return status;
    return Of<const T>(AtollTensorConstData(tensor_));
  }
  // Copies all values out, of which there must be as many as there is room for.
  template <typename T>
  Status CopyTo(std::span<std::type_identity_t<T>> values) const {
    if (Status status = CheckType<T>(); !status) return status;
    return Status::Of(AtollTensorCopyToBuffer(tensor_, values.data(), values.size_bytes()));
  }

  // What the values stand for: scale * (value - zero point) of int8, uint8 and int16 (the values
  // themselves without a scale), numbers of other types as they are. Empty if there are none.
  std::vector<float> RealValues() const {
    return RealValuesOfOne<float, int8_t, uint8_t, int16_t, int32_t, uint32_t, int64_t, bool>();
  }

 protected:
  Status Problem(const std::string& what) const {
    return Status(ATOLL_INVALID_ARGUMENT, tensor_ == nullptr ? "there is no such tensor"
                                                             : "tensor '" + name() + "' " + what);
  }
  template <typename T>
  Status CheckType() const {
    constexpr int kType = internal::kTypeOf<std::remove_cv_t<T>>;
    static_assert(kType >= 0, "tensors hold no values of this type");
    if (kType == static_cast<int>(type())) return Status();
    return Problem(std::string("is ") + AtollTypeName(type()) + ", not " +
                   AtollTypeName(static_cast<AtollType>(kType)));
  }
  template <typename T, typename Data>
  Values<T> Of(Data* data) const {
    const size_t bytes = AtollTensorByteSize(tensor_);
    if (tensor_ == nullptr || (data == nullptr && bytes > 0)) {
      return Problem("has no memory of its own");
    }
    return std::span<T>(static_cast<T*>(data), bytes / sizeof(T));
  }

 private:
  // Of whichever of the types it has.
  template <typename... T>
  std::vector<float> RealValuesOfOne() const {
    std::vector<float> real;
    (void)((type() == internal::kTypeOf<T> && (real = Dequantized(values<T>()), true)) || ...);
    return real;
  }
  template <typename T>
  std::vector<float> Dequantized(const Values<const T>& stored) const {
    std::vector<float> real;
    if (stored.empty()) return real;
    const AtollQuantization q = quantization();
    real.reserve(stored.size());
    for (const T value : stored) {
      if constexpr (std::is_integral_v<T> && sizeof(T) <= 2 && !std::is_same_v<T, bool>) {
        real.push_back(q.scale == 0 ? static_cast<float>(value)
                                    : q.scale * static_cast<float>(value - q.zero_point));
      } else {
        real.push_back(static_cast<float>(value));
      }
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
  Values<std::byte> bytes() const { return Of<std::byte>(AtollTensorData(writable_)); }
  template <typename T>
  Values<T> values() const {
    if (Status status = CheckType<T>(); !status) return status;
    return Of<T>(AtollTensorData(writable_));
  }
  // Sets all values, of which there must be as many as the tensor has: CopyFrom<int8_t>(pixels).
  template <typename T>
  Status CopyFrom(std::span<const std::type_identity_t<T>> values) const {
    if (Status status = CheckType<T>(); !status) return status;
    return Status::Of(AtollTensorCopyFromBuffer(writable_, values.data(), values.size_bytes()));
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
  // With other shapes of inputs than the file has, or a copy of the file.
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

// A device that models run on, or the CPU, which is what the constructor makes.
class Delegate {
 public:
  Delegate() = default;
  // "auto", "emu", "usb": AtollDelegateOptions says which there are. "cpu" is the CPU.
  static Result<Delegate> Open(const std::string& device) {
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

  // Strings live as long as a Delegate of this device. ATOLL_INVALID_ARGUMENT of one that was not
  // opened.
  Result<AtollDeviceInfo> info() const {
    AtollDeviceInfo info = {};
    const AtollStatus status = AtollDelegateGetDeviceInfo(get(), &info);
    if (status != ATOLL_OK) return Status::Of(status);
    return info;
  }
  AtollDelegate* get() const { return delegate_.get(); }  // null: not opened, the CPU

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
  // As in atoll/runtime.h: another shape for an input, then memory for it.
  Status ResizeInput(int32_t index, std::span<const int32_t> dims) {
    return Status::Of(
        AtollInterpreterResizeInput(get(), index, dims.data(), static_cast<int32_t>(dims.size())));
  }
  Status AllocateTensors() { return Status::Of(AtollInterpreterAllocateTensors(get())); }
  Status ResetVariableTensors() { return Status::Of(AtollInterpreterResetVariableTensors(get())); }

  // The file that runs instead of a model that was compiled for a Coral, where there is none ("" if
  // it came from memory); nullopt: the model itself runs.
  std::optional<std::string> substitute() const {
    const char* path = nullptr;
    if (AtollInterpreterGetSubstitute(get(), &path) != ATOLL_OK || path == nullptr) return {};
    return path;
  }

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

// What begin() gives stays good without the Values that gave it.
template <typename T>
inline constexpr bool std::ranges::enable_borrowed_range<atollpp::Values<T>> = true;

#endif  // ATOLL_ATOLL_HPP_

// SPDX-License-Identifier: Apache-2.0
#include "compat/tensorflowlite_c/interpreter.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <set>
#include <string>

namespace {

struct TypePair {
  AtollType atoll;
  TfLiteType tflite;
};
constexpr TypePair kTypes[] = {{ATOLL_FLOAT32, kTfLiteFloat32},   {ATOLL_INT32, kTfLiteInt32},
                               {ATOLL_UINT8, kTfLiteUInt8},       {ATOLL_INT64, kTfLiteInt64},
                               {ATOLL_STRING, kTfLiteString},     {ATOLL_BOOL, kTfLiteBool},
                               {ATOLL_INT16, kTfLiteInt16},       {ATOLL_INT8, kTfLiteInt8},
                               {ATOLL_RESOURCE, kTfLiteResource}, {ATOLL_UINT32, kTfLiteUInt32},
                               {ATOLL_FLOAT16, kTfLiteFloat16}};

TfLiteType ToTfLite(AtollType type) {
  const auto* const pair = std::ranges::find(kTypes, type, &TypePair::atoll);
  return pair != std::end(kTypes) ? pair->tflite : kTfLiteNoType;
}

TfLiteStatus ToTfLite(AtollStatus status) {
  switch (status) {
    case ATOLL_OK:
      return kTfLiteOk;
    case ATOLL_CANCELLED:
      return kTfLiteCancelled;
    case ATOLL_DEVICE_LOST:
    case ATOLL_DEVICE_BUSY:
    case ATOLL_TIMEOUT:
      return kTfLiteDelegateError;
    default:
      return kTfLiteError;
  }
}

TfLiteIntArray* Dims(const AtollTensor& tensor, int32_t (*dim)(const AtollTensor*, int32_t)) {
  const int32_t count = AtollTensorNumDims(&tensor);
  TfLiteIntArray* const dims = TfLiteIntArrayCreate(count);
  for (int32_t i = 0; i < count; ++i) dims->data[i] = dim(&tensor, i);
  return dims;
}

// The file's shape, if a size of it may change; else none.
TfLiteIntArray* Signature(const AtollTensor& tensor) {
  TfLiteIntArray* const dims = Dims(tensor, AtollTensorDimSignature);
  if (std::count(dims->data, dims->data + dims->size, -1) == 0) dims->size = 0;
  return dims;
}

TfLiteQuantization Quantization(const AtollTensor& tensor) {
  AtollChannelQuantization channels = {};
  if (AtollTensorGetChannelQuantization(&tensor, &channels) != ATOLL_OK || channels.count == 0) {
    return {};
  }
  auto* const affine =
      static_cast<TfLiteAffineQuantization*>(std::malloc(sizeof(TfLiteAffineQuantization)));
  *affine = {.scale = TfLiteFloatArrayCreate(channels.count),
             .zero_point = TfLiteIntArrayCreate(channels.count),
             .quantized_dimension = channels.dimension};
  std::copy_n(channels.scales, channels.count, affine->scale->data);
  for (int32_t i = 0; i < channels.count; ++i) {
    affine->zero_point->data[i] = static_cast<int32_t>(channels.zero_points[i]);
  }
  return {.type = kTfLiteAffineQuantization, .params = affine};
}

// A view of a tensor's bytes; what the caller may write is its own affair.
void* DataOf(const AtollTensor* tensor) { return const_cast<void*>(AtollTensorConstData(tensor)); }

// Says, once for each file, that it runs in the place of a model that was compiled for a Coral.
void WarnOfSubstitute(const AtollInterpreter& interpreter) {
  const char* path = nullptr;
  if (AtollInterpreterGetSubstitute(&interpreter, &path) != ATOLL_OK || path == nullptr) return;
  static std::mutex mutex;
  static auto* const told = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (!told->insert(path).second) return;
  atollcompat::Warn(
      "the model was compiled for a Coral, and none is used: '%s' runs instead; it may be another "
      "conversion, whose bytes differ from the Coral's",
      path);
}

}  // namespace

std::unique_ptr<TfLiteInterpreter> TfLiteInterpreter::Create(
    std::shared_ptr<AtollModel> model, const TfLiteInterpreterOptions& options) {
  std::unique_ptr<TfLiteInterpreter> made(new TfLiteInterpreter(std::move(model), options));
  made->device_ = atollcompat::ChooseDevice(options.delegates, options.reporter);
  if (!made->device_.ok || !made->MakeInterpreter(made->device_)) return nullptr;
  made->MakeTensors();
  return made;
}

TfLiteInterpreter::~TfLiteInterpreter() {
  for (TfLiteTensor& tensor : tensors_) TfLiteTensorFree(&tensor);
}

bool TfLiteInterpreter::MakeInterpreter(const atollcompat::Device& device) {
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  constexpr int32_t kMostThreads = 256;  // that Atoll takes
  options.num_threads = std::clamp(options_.num_threads, 0, kMostThreads);
  options.delegate = device.delegate;
  AtollInterpreter* made = nullptr;
  const AtollStatus status = AtollInterpreterCreate(model_.get(), &options, &made);
  if (status == ATOLL_OK) {
    interpreter_.reset(made);
    WarnOfSubstitute(*made);
    return true;
  }
  if (interpreter_ == nullptr && status == ATOLL_UNSUPPORTED &&
      AtollModelHasOperator(model_.get(), "CUSTOM") != 0) {
    unresolved_ = AtollLastError();
    return true;
  }
  reporter().SayLastError();
  return false;
}

void TfLiteInterpreter::MakeTensors() {
  AtollInterpreter* const from = interpreter_.get();
  const bool is_model = from == nullptr;
  const auto count = static_cast<size_t>(is_model ? AtollModelGetTensorCount(model_.get())
                                                  : AtollInterpreterGetTensorCount(from));
  tensors_.resize(count);
  own_data_.resize(count);
  names_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const auto index = static_cast<int32_t>(i);
    const AtollTensor* const tensor = is_model ? AtollModelGetTensor(model_.get(), index)
                                               : AtollInterpreterGetTensor(from, index);
    names_[i] = AtollTensorName(tensor);
    const AtollQuantization whole = AtollTensorQuantization(tensor);
    const bool is_constant = AtollTensorIsConstant(tensor) != 0;
    tensors_[i] = {.type = ToTfLite(AtollTensorType(tensor)),
                   .dims = Dims(*tensor, AtollTensorDim),
                   .params = {whole.scale, whole.zero_point},
                   .allocation_type = is_constant ? kTfLiteMmapRo : kTfLiteArenaRw,
                   .bytes = AtollTensorByteSize(tensor),
                   .name = names_[i].c_str(),
                   .buffer_handle = -1,
                   .is_variable = AtollTensorIsVariable(tensor) != 0,
                   .quantization = Quantization(*tensor),
                   .dims_signature = Signature(*tensor)};
    if (is_constant) tensors_[i].data.data = DataOf(tensor);
  }
  const int32_t input_count = is_model ? AtollModelGetInputTensorCount(model_.get())
                                       : AtollInterpreterGetInputTensorCount(from);
  for (int32_t i = 0; i < input_count; ++i) {
    inputs_.push_back(AtollTensorIndex(is_model ? AtollModelGetInputTensor(model_.get(), i)
                                                : AtollInterpreterGetInputTensor(from, i)));
  }
  const int32_t output_count = is_model ? AtollModelGetOutputTensorCount(model_.get())
                                        : AtollInterpreterGetOutputTensorCount(from);
  for (int32_t i = 0; i < output_count; ++i) {
    outputs_.push_back(AtollTensorIndex(is_model ? AtollModelGetOutputTensor(model_.get(), i)
                                                 : AtollInterpreterGetOutputTensor(from, i)));
  }
}

const AtollTensor* TfLiteInterpreter::Find(size_t index) const {
  const AtollTensor* const tensor =
      AtollInterpreterGetTensor(interpreter_.get(), static_cast<int32_t>(index));
  // With another delegate another model may run, in the place of one for a Coral.
  return tensor != nullptr && names_[index] == AtollTensorName(tensor) ? tensor : nullptr;
}

void TfLiteInterpreter::RefreshDims(size_t index, const AtollTensor& tensor) {
  TfLiteIntArray* const dims = Dims(tensor, AtollTensorDim);
  if (TfLiteIntArrayEqual(dims, tensors_[index].dims)) {
    TfLiteIntArrayFree(dims);
  } else {
    TfLiteIntArrayFree(tensors_[index].dims);
    tensors_[index].dims = dims;
  }
  tensors_[index].bytes = AtollTensorByteSize(&tensor);
}

void TfLiteInterpreter::RefreshTensors() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const AtollTensor* const tensor = Find(i);
    if (tensor == nullptr) continue;  // of the model that ran before there was another delegate
    RefreshDims(i, *tensor);
    if (tensors_[i].allocation_type == kTfLiteMmapRo) tensors_[i].data.data = DataOf(tensor);
  }
  const auto show = [this](const std::vector<int>& indices, bool is_input) {
    for (size_t i = 0; i < indices.size(); ++i) {
      const auto index = static_cast<size_t>(indices[i]);
      const AtollTensor* const tensor = InputOrOutput(i, is_input);
      RefreshDims(index, *tensor);
      own_data_[index] = DataOf(tensor);
      tensors_[index].data.data = own_data_[index];
    }
  };
  show(inputs_, true);
  show(outputs_, false);
}

AtollTensor* TfLiteInterpreter::InputOrOutput(size_t index, bool is_input) {
  const auto number = static_cast<int32_t>(index);
  return is_input ? AtollInterpreterGetInputTensor(interpreter_.get(), number)
                  : const_cast<AtollTensor*>(
                        AtollInterpreterGetOutputTensor(interpreter_.get(), number));
}

void TfLiteInterpreter::ForgetData() {
  is_allocated_ = false;
  for (TfLiteTensor& tensor : tensors_) {
    if (tensor.allocation_type != kTfLiteMmapRo) tensor.data.data = nullptr;
  }
}

TfLiteStatus TfLiteInterpreter::AllocateTensors() {
  if (interpreter_ == nullptr) {
    reporter().Say("%s", unresolved_.c_str());
    return kTfLiteUnresolvedOps;
  }
  if (const AtollStatus status = AtollInterpreterAllocateTensors(interpreter_.get());
      status != ATOLL_OK) {
    ForgetData();
    reporter().SayLastError();
    return ToTfLite(status);
  }
  RefreshTensors();
  is_allocated_ = true;
  return kTfLiteOk;
}

TfLiteStatus TfLiteInterpreter::ResizeInput(int32_t input, const int* dims, int32_t count) {
  if (input < 0 || static_cast<size_t>(input) >= inputs_.size()) {
    reporter().Say("there is no input %d: the model has %zu", input, inputs_.size());
    return kTfLiteError;
  }
  if (const int* const negative = std::find_if(dims, dims + count, [](int dim) { return dim < 0; });
      negative != dims + count) {
    reporter().Say("size %d of input %d is to be %d", static_cast<int>(negative - dims), input,
                   *negative);
    return kTfLiteError;
  }
  TfLiteTensor& tensor = tensors_[static_cast<size_t>(inputs_[static_cast<size_t>(input)])];
  if (TfLiteIntArrayEqualsArray(tensor.dims, count, dims)) return kTfLiteOk;
  if (interpreter_ != nullptr &&
      AtollInterpreterResizeInput(interpreter_.get(), input, dims, count) != ATOLL_OK) {
    reporter().SayLastError();
    return kTfLiteError;
  }
  TfLiteIntArrayFree(tensor.dims);
  tensor.dims = TfLiteIntArrayCreate(count);
  std::copy_n(dims, count, tensor.dims->data);
  ForgetData();
  return kTfLiteOk;
}

TfLiteStatus TfLiteInterpreter::Invoke() {
  if (!is_allocated_) {
    reporter().Say("Invoke called on model that is not ready.");
    return kTfLiteError;
  }
  const auto moved = [this](int index) {
    const TfLiteTensor& tensor = tensors_[static_cast<size_t>(index)];
    return tensor.data.data != own_data_[static_cast<size_t>(index)] && tensor.data.data != nullptr;
  };
  for (const int index : inputs_) {
    const TfLiteTensor& tensor = tensors_[static_cast<size_t>(index)];
    if (moved(index))
      std::memcpy(own_data_[static_cast<size_t>(index)], tensor.data.data, tensor.bytes);
  }
  const AtollStatus status = AtollInterpreterInvoke(interpreter_.get());
  if (status != ATOLL_OK) {
    reporter().SayLastError();
    return ToTfLite(status);
  }
  for (const int index : outputs_) {
    const TfLiteTensor& tensor = tensors_[static_cast<size_t>(index)];
    if (moved(index))
      std::memcpy(tensor.data.data, own_data_[static_cast<size_t>(index)], tensor.bytes);
  }
  return kTfLiteOk;
}

TfLiteStatus TfLiteInterpreter::Cancel() {
  if (!options_.can_cancel || interpreter_ == nullptr) return kTfLiteError;
  return ToTfLite(AtollInterpreterCancel(interpreter_.get()));
}

TfLiteStatus TfLiteInterpreter::ResetVariableTensors() {
  if (interpreter_ == nullptr) return kTfLiteError;
  return ToTfLite(AtollInterpreterResetVariableTensors(interpreter_.get()));
}

TfLiteStatus TfLiteInterpreter::ModifyGraph(TfLiteDelegate* delegate) {
  if (delegate == nullptr) return kTfLiteError;
  options_.delegates.push_back(delegate);
  atollcompat::Device device = atollcompat::ChooseDevice(options_.delegates, reporter());
  if (device.ok && device.delegate == device_.delegate) return kTfLiteOk;
  if (!device.ok || !MakeInterpreter(device)) {
    options_.delegates.pop_back();  // the program may delete what it could not use
    return kTfLiteDelegateError;
  }
  std::swap(device, device_);
  if (interpreter_ == nullptr) return kTfLiteOk;  // AllocateTensors says why
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].allocation_type != kTfLiteMmapRo) continue;
    const AtollTensor* const tensor = Find(i);
    tensors_[i].data.data = tensor != nullptr ? DataOf(tensor) : nullptr;
  }
  // The shapes that were asked for hold in the new one, too.
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const TfLiteIntArray* const dims = tensors_[static_cast<size_t>(inputs_[i])].dims;
    TfLiteIntArray* const in_file = Dims(*InputOrOutput(i, /*is_input=*/true), AtollTensorDim);
    const bool same = TfLiteIntArrayEqual(in_file, dims) != 0;
    TfLiteIntArrayFree(in_file);
    if (!same) {
      AtollInterpreterResizeInput(interpreter_.get(), static_cast<int32_t>(i), dims->data,
                                  dims->size);
    }
  }
  ForgetData();
  return kTfLiteOk;
}

TfLiteTensor* TfLiteInterpreter::tensor(int32_t index) {
  if (index < 0 || static_cast<size_t>(index) >= tensors_.size()) return nullptr;
  return &tensors_[static_cast<size_t>(index)];
}

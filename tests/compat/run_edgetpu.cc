// SPDX-License-Identifier: Apache-2.0
//
// usage: run_edgetpu WAY [--device DEVICE] [--option KEY=VALUE] [--order 0,1,0] [--seed 1,2]
//                    [--whole] [--times N] [--keep-open] [--threads] MODEL...
//
// A program as others write it for an Edge TPU: over TensorFlow Lite's C interface, and over
// libedgetpu.so.1 in one of the ways in which programs use it. WAY:
//   plugin   what Python does: tflite_plugin_create_delegate for each interpreter
//   c        what Go, Rust and small C++ programs do: the first of edgetpu_list_devices
//   custom   what libcoral does: OpenDevice, RegisterCustomOp and an external context
// Of each model the operator for the Edge TPU alone is run, which must be the only one of its kind,
// unless it is --whole; without a model the device is opened and closed. An interpreter for each
// model; then, in this order, inputs from a seed and Invoke. Writes the bytes of all outputs to
// stdout. --times: everything so often, and nothing to stdout but the kilobytes in use after a
// tenth of the times and after all. Exit code 1, with what was reported on stderr, if something
// fails.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compat/edgetpu/edgetpu.h"
#include "compat/edgetpu/edgetpu_c.h"
#include "compat/tensorflowlite_c/c_api.h"
#include "tflite_generated.h"

namespace {

namespace tflite = atollrt::tflite;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "run_edgetpu: %s\n", what.c_str());
  std::exit(1);
}

struct Arguments {
  std::string way;
  std::vector<std::pair<std::string, std::string>> options;  // "device" among them
  std::vector<size_t> order;
  std::vector<uint64_t> seeds = {1};
  bool whole = false;
  bool keep_open = false;
  bool threads = false;
  int times = 1;
  std::vector<std::string> models;
};

template <typename T>
std::vector<T> Numbers(const std::string& text) {
  std::vector<T> numbers;
  std::istringstream stream(text);
  for (std::string one; std::getline(stream, one, ',');) numbers.push_back(std::stoul(one));
  return numbers;
}

Arguments Read(int argc, char** argv) {
  Arguments arguments;
  if (argc < 2) Die("usage: run_edgetpu WAY ...");
  arguments.way = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    if (argument == "--device") {
      arguments.options.emplace_back("device", value());
    } else if (argument == "--option") {
      const std::string pair = value();
      const size_t equals = pair.find('=');
      arguments.options.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
    } else if (argument == "--order") {
      arguments.order = Numbers<size_t>(value());
    } else if (argument == "--seed") {
      arguments.seeds = Numbers<uint64_t>(value());
    } else if (argument == "--whole") {
      arguments.whole = true;
    } else if (argument == "--keep-open") {
      arguments.keep_open = true;
    } else if (argument == "--threads") {
      arguments.threads = true;
    } else if (argument == "--times") {
      arguments.times = std::stoi(value());
    } else {
      arguments.models.push_back(argument);
    }
  }
  return arguments;
}

// The model with one operator of it alone.
std::string OnlyEdgeTpuOperator(const std::string& file) {
  const tflite::Model* const model = tflite::GetModel(file.data());
  const tflite::SubGraph* const graph = model->subgraphs()->Get(0);
  const tflite::Operator* found = nullptr;
  for (const tflite::Operator* const op : *graph->operators()) {
    const auto* const name = model->operator_codes()->Get(op->opcode_index())->custom_code();
    if (name != nullptr && name->str() == "edgetpu-custom-op") {
      if (found != nullptr) Die("several operators for an Edge TPU");
      found = op;
    }
  }
  if (found == nullptr) Die("no operator for an Edge TPU");
  flatbuffers::FlatBufferBuilder fbb;
  std::vector<flatbuffers::Offset<tflite::Tensor>> tensors;
  std::vector<int32_t> inputs;
  std::vector<int32_t> outputs;
  const auto add = [&](const flatbuffers::Vector<int32_t>& from, std::vector<int32_t>* to) {
    for (const int32_t index : from) {
      const tflite::Tensor* const tensor = graph->tensors()->Get(index);
      flatbuffers::Offset<tflite::QuantizationParameters> quantization;
      if (const auto* const q = tensor->quantization();
          q != nullptr && q->scale() != nullptr && q->zero_point() != nullptr) {
        const std::vector<float> scales(q->scale()->begin(), q->scale()->end());
        const std::vector<int64_t> zeros(q->zero_point()->begin(), q->zero_point()->end());
        quantization =
            tflite::CreateQuantizationParametersDirect(fbb, nullptr, nullptr, &scales, &zeros);
      }
      const std::vector<int32_t> shape(tensor->shape()->begin(), tensor->shape()->end());
      to->push_back(static_cast<int32_t>(tensors.size()));
      tensors.push_back(tflite::CreateTensorDirect(fbb, &shape, tensor->type(), 0,
                                                   tensor->name()->c_str(), quantization));
    }
  };
  add(*found->inputs(), &inputs);
  add(*found->outputs(), &outputs);
  const std::vector<uint8_t> package(found->custom_options()->begin(),
                                     found->custom_options()->end());
  const std::vector<flatbuffers::Offset<tflite::OperatorCode>> codes = {
      tflite::CreateOperatorCodeDirect(fbb, 32, "edgetpu-custom-op", 1, 32)};
  const auto stored_inputs = fbb.CreateVector(inputs);
  const auto stored_outputs = fbb.CreateVector(outputs);
  const auto stored_package = fbb.CreateVector(package);
  const std::vector<flatbuffers::Offset<tflite::Operator>> operators = {tflite::CreateOperator(
      fbb, 0, stored_inputs, stored_outputs, tflite::BuiltinOptions::NONE, 0, stored_package)};
  const std::vector<flatbuffers::Offset<tflite::SubGraph>> graphs = {
      tflite::CreateSubGraphDirect(fbb, &tensors, &inputs, &outputs, &operators)};
  const std::vector<flatbuffers::Offset<tflite::Buffer>> buffers = {tflite::CreateBuffer(fbb)};
  fbb.Finish(tflite::CreateModelDirect(fbb, 3, &codes, &graphs, nullptr, &buffers), "TFL3");
  return {reinterpret_cast<const char*>(fbb.GetBufferPointer()), fbb.GetSize()};
}

uint64_t Next(uint64_t* state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

void Report(void* /*user_data*/, const char* format, va_list args) {
  std::vfprintf(stderr, format, args);
  std::fputc('\n', stderr);
}

// What binds an interpreter to an Edge TPU in each of the ways.
class Binding {
 public:
  explicit Binding(const Arguments& arguments) : arguments_(arguments) {}
  ~Binding() {
    if (plugin_delegate_ != nullptr) destroy_(plugin_delegate_);
    if (c_delegate_ != nullptr) edgetpu_free_delegate(c_delegate_);
  }
  Binding(const Binding&) = delete;

  void Apply(TfLiteInterpreterOptions* options) {
    if (arguments_.way == "plugin") {
      AddPlugin(options);
    } else if (arguments_.way == "c") {
      AddFirstListed(options);
    } else if (arguments_.way == "custom") {
      AddCustomOperator(options);
    } else {
      Die("no way '" + arguments_.way + "'");
    }
  }

 private:
  void AddPlugin(TfLiteInterpreterOptions* options) {
    void* const library = dlopen("libedgetpu.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) Die(dlerror());
    const auto create = reinterpret_cast<decltype(&tflite_plugin_create_delegate)>(
        dlsym(library, "tflite_plugin_create_delegate"));
    destroy_ = reinterpret_cast<decltype(&tflite_plugin_destroy_delegate)>(
        dlsym(library, "tflite_plugin_destroy_delegate"));
    std::vector<char*> keys;
    std::vector<char*> values;
    for (const auto& [key, value] : arguments_.options) {
      keys.push_back(const_cast<char*>(key.c_str()));
      values.push_back(const_cast<char*>(value.c_str()));
    }
    plugin_delegate_ = create(keys.data(), values.data(), keys.size(), [](const char* why) {
      std::fprintf(stderr, "run_edgetpu: %s\n", why);
    });
    if (plugin_delegate_ == nullptr) Die("no delegate");
    TfLiteInterpreterOptionsAddDelegate(options, plugin_delegate_);
  }

  void AddFirstListed(TfLiteInterpreterOptions* options) {
    size_t count = 0;
    edgetpu_device* const devices = edgetpu_list_devices(&count);
    if (count == 0) Die("no devices");
    std::vector<edgetpu_option> given;
    for (const auto& [key, value] : arguments_.options) {
      given.push_back({key.c_str(), value.c_str()});
    }
    c_delegate_ =
        edgetpu_create_delegate(devices[0].type, devices[0].path, given.data(), given.size());
    edgetpu_free_devices(devices);
    if (c_delegate_ == nullptr) Die("no delegate");
    TfLiteInterpreterOptionsAddDelegate(options, c_delegate_);
  }

  void AddCustomOperator(TfLiteInterpreterOptions* options) {
    context_ = edgetpu::EdgeTpuManager::GetSingleton()->OpenDevice();
    if (context_ == nullptr) Die("no device");
    TfLiteInterpreterOptionsAddCustomOp(options, "edgetpu-custom-op", edgetpu::RegisterCustomOp(),
                                        1, 1);
    // SetExternalContext is one of C++; in C it takes a delegate to get there.
    external_.data_ = context_.get();
    external_.Prepare = [](TfLiteContext* context, TfLiteDelegate* delegate) {
      context->SetExternalContext(context, kTfLiteEdgeTpuContext,
                                  static_cast<edgetpu::EdgeTpuContext*>(delegate->data_));
      return kTfLiteOk;
    };
    external_.flags = kTfLiteDelegateFlagsAllowDynamicTensors;
    TfLiteInterpreterOptionsAddDelegate(options, &external_);
  }

  const Arguments& arguments_;
  TfLiteDelegate* plugin_delegate_ = nullptr;
  decltype(&tflite_plugin_destroy_delegate) destroy_ = nullptr;
  TfLiteDelegate* c_delegate_ = nullptr;
  std::shared_ptr<edgetpu::EdgeTpuContext> context_;
  TfLiteDelegate external_ = {};
};

struct Session {
  Session(const Arguments& arguments, const std::string& file) : binding(arguments) {
    TfLiteModel* const model = TfLiteModelCreate(file.data(), file.size());
    if (model == nullptr) Die("no model");
    TfLiteInterpreterOptions* const options = TfLiteInterpreterOptionsCreate();
    TfLiteInterpreterOptionsSetErrorReporter(options, Report, nullptr);
    binding.Apply(options);
    interpreter = TfLiteInterpreterCreate(model, options);
    if (interpreter == nullptr) Die("TfLiteInterpreterCreate failed");
    TfLiteInterpreterOptionsDelete(options);
    TfLiteModelDelete(model);
    if (TfLiteInterpreterAllocateTensors(interpreter) != kTfLiteOk) {
      Die("TfLiteInterpreterAllocateTensors failed");
    }
  }
  ~Session() { TfLiteInterpreterDelete(interpreter); }
  Session(const Session&) = delete;

  void Run(uint64_t seed, bool print) {
    for (int32_t i = 0; i < TfLiteInterpreterGetInputTensorCount(interpreter); ++i) {
      TfLiteTensor* const input = TfLiteInterpreterGetInputTensor(interpreter, i);
      std::vector<uint8_t> bytes(TfLiteTensorByteSize(input) + sizeof(uint64_t));
      uint64_t state = seed;
      for (size_t at = 0; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
        const uint64_t value = Next(&state);
        std::memcpy(bytes.data() + at, &value, sizeof(value));
      }
      TfLiteTensorCopyFromBuffer(input, bytes.data(), TfLiteTensorByteSize(input));
    }
    if (TfLiteInterpreterInvoke(interpreter) != kTfLiteOk) Die("TfLiteInterpreterInvoke failed");
    for (int32_t i = 0; print && i < TfLiteInterpreterGetOutputTensorCount(interpreter); ++i) {
      const TfLiteTensor* const output = TfLiteInterpreterGetOutputTensor(interpreter, i);
      std::fwrite(TfLiteTensorData(output), 1, TfLiteTensorByteSize(output), stdout);
    }
  }

  Binding binding;  // outlives the interpreter
  TfLiteInterpreter* interpreter = nullptr;
};

long ResidentKilobytes() {
  std::ifstream statm("/proc/self/statm");
  long pages = 0;
  statm >> pages >> pages;
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = Read(argc, argv);
  std::vector<std::string> files;
  for (const std::string& path : arguments.models) {
    std::ifstream stream(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    if (bytes.empty()) Die("cannot read " + path);
    files.push_back(arguments.whole ? std::move(bytes) : OnlyEdgeTpuOperator(bytes));
  }
  Binding kept(arguments);
  if (files.empty() || arguments.keep_open) {
    TfLiteInterpreterOptions* const options = TfLiteInterpreterOptionsCreate();
    kept.Apply(options);
    TfLiteInterpreterOptionsDelete(options);
  }
  for (int turn = 1; turn <= arguments.times; ++turn) {
    std::vector<std::unique_ptr<Session>> sessions;
    for (const std::string& file : files) {
      sessions.push_back(std::make_unique<Session>(arguments, file));
    }
    if (arguments.threads) {
      std::vector<std::thread> threads;
      for (const auto& session : sessions) {
        threads.emplace_back([&] {
          for (size_t i = 0; i < arguments.order.size(); ++i) session->Run(1, false);
        });
      }
      for (std::thread& thread : threads) thread.join();
      continue;
    }
    for (size_t i = 0; i < arguments.order.size(); ++i) {
      const uint64_t seed = arguments.seeds[i % arguments.seeds.size()];
      sessions.at(arguments.order[i])->Run(seed, arguments.times == 1);
    }
    if (arguments.times > 1 && (turn == arguments.times / 10 || turn == arguments.times)) {
      sessions.clear();
      std::printf("%ld\n", ResidentKilobytes());
    }
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "bench/peer_libraries.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <utility>

#include "atoll/runtime.h"

namespace atollrt {
namespace {

// Stays open: threads of a library may outlive what they were made for.
class Library {
 public:
  static Result<Library> Open(const std::string& path) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return NotFound("cannot open library: %s", dlerror());
    return Library(path, handle);
  }
  // Null if there is none.
  template <typename Function>
  void FindOptional(const char* name, Function** function) const {
    *function = reinterpret_cast<Function*>(dlsym(handle_, name));
  }
  template <typename Function>
  Status Find(const char* name, Function** function) const {
    FindOptional(name, function);
    if (*function != nullptr) return Status();
    return NotFound("'%s' has no function %s", path_.c_str(), name);
  }

 private:
  Library(std::string path, void* handle) : path_(std::move(path)), handle_(handle) {}

  std::string path_;
  void* handle_;
};

}  // namespace

// Functions are named once: where they are declared.
#define PEER_FUNCTION(name) decltype(::name)* name = nullptr
#define PEER_FIND(name) ATOLL_RETURN_IF_ERROR(library.Find(#name, &functions.name))

struct AtollFunctions {
  PEER_FUNCTION(AtollVersion);
  PEER_FUNCTION(AtollLastError);
  PEER_FUNCTION(AtollCpuName);
  PEER_FUNCTION(AtollModelCreateFromFile);
  PEER_FUNCTION(AtollModelDelete);
  PEER_FUNCTION(AtollInterpreterCreate);
  PEER_FUNCTION(AtollInterpreterDelete);
  PEER_FUNCTION(AtollInterpreterInvoke);
  PEER_FUNCTION(AtollInterpreterGetInputTensorCount);
  PEER_FUNCTION(AtollInterpreterGetOutputTensorCount);
  PEER_FUNCTION(AtollInterpreterGetInputTensor);
  PEER_FUNCTION(AtollInterpreterGetOutputTensor);
  PEER_FUNCTION(AtollTensorByteSize);
  PEER_FUNCTION(AtollTensorData);
  PEER_FUNCTION(AtollTensorConstData);

  static Result<AtollFunctions> Find(const std::string& path) {
    ATOLL_ASSIGN_OR_RETURN(const Library library, Library::Open(path));
    AtollFunctions functions;
    PEER_FIND(AtollVersion);
    PEER_FIND(AtollLastError);
    PEER_FIND(AtollCpuName);
    PEER_FIND(AtollModelCreateFromFile);
    PEER_FIND(AtollModelDelete);
    PEER_FIND(AtollInterpreterCreate);
    PEER_FIND(AtollInterpreterDelete);
    PEER_FIND(AtollInterpreterInvoke);
    PEER_FIND(AtollInterpreterGetInputTensorCount);
    PEER_FIND(AtollInterpreterGetOutputTensorCount);
    PEER_FIND(AtollInterpreterGetInputTensor);
    PEER_FIND(AtollInterpreterGetOutputTensor);
    PEER_FIND(AtollTensorByteSize);
    PEER_FIND(AtollTensorData);
    PEER_FIND(AtollTensorConstData);
    return functions;
  }
};

// TfLiteXNNPackDelegateOptions begins like this in every version. What later ones have behind it is
// off when it is zero; asking the library for its defaults would need the size of its struct.
struct XnnpackOptions {
  static constexpr uint32_t kInt8 = 1;
  static constexpr uint32_t kUint8 = 2;
  int32_t num_threads = 0;
  uint32_t flags = 0;
  uint8_t later[248] = {};
};

struct TfliteFunctions {
  PEER_FUNCTION(TfLiteVersion);
  PEER_FUNCTION(TfLiteModelCreateFromFile);
  PEER_FUNCTION(TfLiteModelDelete);
  PEER_FUNCTION(TfLiteInterpreterOptionsCreate);
  PEER_FUNCTION(TfLiteInterpreterOptionsDelete);
  PEER_FUNCTION(TfLiteInterpreterOptionsSetNumThreads);
  PEER_FUNCTION(TfLiteInterpreterOptionsSetErrorReporter);
  PEER_FUNCTION(TfLiteInterpreterOptionsAddDelegate);
  PEER_FUNCTION(TfLiteInterpreterCreate);
  PEER_FUNCTION(TfLiteInterpreterDelete);
  PEER_FUNCTION(TfLiteInterpreterAllocateTensors);
  PEER_FUNCTION(TfLiteInterpreterInvoke);
  PEER_FUNCTION(TfLiteInterpreterGetInputTensorCount);
  PEER_FUNCTION(TfLiteInterpreterGetOutputTensorCount);
  PEER_FUNCTION(TfLiteInterpreterGetInputTensor);
  PEER_FUNCTION(TfLiteInterpreterGetOutputTensor);
  PEER_FUNCTION(TfLiteTensorType);
  PEER_FUNCTION(TfLiteTensorByteSize);
  PEER_FUNCTION(TfLiteTensorData);
  // Null where the library was built without XNNPACK.
  TfLiteDelegate* (*xnnpack_create)(const XnnpackOptions* options) = nullptr;
  void (*xnnpack_delete)(TfLiteDelegate* delegate) = nullptr;

  static Result<TfliteFunctions> Find(const std::string& path) {
    ATOLL_ASSIGN_OR_RETURN(const Library library, Library::Open(path));
    TfliteFunctions functions;
    PEER_FIND(TfLiteVersion);
    PEER_FIND(TfLiteModelCreateFromFile);
    PEER_FIND(TfLiteModelDelete);
    PEER_FIND(TfLiteInterpreterOptionsCreate);
    PEER_FIND(TfLiteInterpreterOptionsDelete);
    PEER_FIND(TfLiteInterpreterOptionsSetNumThreads);
    PEER_FIND(TfLiteInterpreterOptionsSetErrorReporter);
    PEER_FIND(TfLiteInterpreterOptionsAddDelegate);
    PEER_FIND(TfLiteInterpreterCreate);
    PEER_FIND(TfLiteInterpreterDelete);
    PEER_FIND(TfLiteInterpreterAllocateTensors);
    PEER_FIND(TfLiteInterpreterInvoke);
    PEER_FIND(TfLiteInterpreterGetInputTensorCount);
    PEER_FIND(TfLiteInterpreterGetOutputTensorCount);
    PEER_FIND(TfLiteInterpreterGetInputTensor);
    PEER_FIND(TfLiteInterpreterGetOutputTensor);
    PEER_FIND(TfLiteTensorType);
    PEER_FIND(TfLiteTensorByteSize);
    PEER_FIND(TfLiteTensorData);
    library.FindOptional("TfLiteXNNPackDelegateCreate", &functions.xnnpack_create);
    library.FindOptional("TfLiteXNNPackDelegateDelete", &functions.xnnpack_delete);
    if (functions.xnnpack_delete == nullptr) functions.xnnpack_create = nullptr;
    return functions;
  }
};

#undef PEER_FUNCTION
#undef PEER_FIND

namespace {

class AtollSide final : public Side {
 public:
  static Result<std::unique_ptr<AtollSide>> Create(std::shared_ptr<const AtollFunctions> library,
                                                   const std::string& path, int threads) {
    std::unique_ptr<AtollSide> side(new AtollSide(std::move(library)));
    const AtollFunctions& functions = *side->functions_;
    AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
    options.num_threads = threads;
    if (functions.AtollModelCreateFromFile(path.c_str(), &side->model_) != ATOLL_OK ||
        functions.AtollInterpreterCreate(side->model_, &options, &side->interpreter_) != ATOLL_OK) {
      return Unsupported("Atoll: %s", functions.AtollLastError());
    }
    AtollInterpreter* const interpreter = side->interpreter_;
    for (int i = 0; i < functions.AtollInterpreterGetInputTensorCount(interpreter); ++i) {
      AtollTensor* const tensor = functions.AtollInterpreterGetInputTensor(interpreter, i);
      side->inputs_.emplace_back(static_cast<uint8_t*>(functions.AtollTensorData(tensor)),
                                 functions.AtollTensorByteSize(tensor));
    }
    for (int i = 0; i < functions.AtollInterpreterGetOutputTensorCount(interpreter); ++i) {
      const AtollTensor* const tensor = functions.AtollInterpreterGetOutputTensor(interpreter, i);
      side->outputs_.emplace_back(
          static_cast<const uint8_t*>(functions.AtollTensorConstData(tensor)),
          functions.AtollTensorByteSize(tensor));
    }
    return side;
  }
  ~AtollSide() override {
    functions_->AtollInterpreterDelete(interpreter_);
    functions_->AtollModelDelete(model_);
  }
  Status Invoke() override {
    if (functions_->AtollInterpreterInvoke(interpreter_) == ATOLL_OK) return Status();
    return InternalError("Atoll: %s", functions_->AtollLastError());
  }

 private:
  explicit AtollSide(std::shared_ptr<const AtollFunctions> functions)
      : functions_(std::move(functions)) {}

  const std::shared_ptr<const AtollFunctions> functions_;
  AtollModel* model_ = nullptr;
  AtollInterpreter* interpreter_ = nullptr;
};

// What a delegate took of a graph. A runtime tells only the delegate, so its Prepare is replaced by
// one that calls it and compares the plans of execution before and after. One at a time.
struct Taken {
  decltype(TfLiteDelegate::Prepare) prepare = nullptr;
  int nodes = 0;
  int of = 0;
};
Taken taken;

int PlanSize(TfLiteContext* context) {
  TfLiteIntArray* plan = nullptr;
  return context->GetExecutionPlan(context, &plan) == kTfLiteOk ? plan->size : 0;
}

TfLiteStatus PrepareAndCount(TfLiteContext* context, TfLiteDelegate* delegate) {
  taken.of = PlanSize(context);
  const TfLiteStatus status = taken.prepare(context, delegate);
  TfLiteIntArray* plan = nullptr;
  if (status != kTfLiteOk || context->GetExecutionPlan(context, &plan) != kTfLiteOk) return status;
  // Its own nodes each stand for several.
  int left = 0;
  const std::vector<int> nodes(plan->data, plan->data + plan->size);
  for (const int index : nodes) {
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    if (context->GetNodeAndRegistration(context, index, &node, &registration) != kTfLiteOk ||
        node->delegate != delegate) {
      ++left;
    }
  }
  taken.nodes = taken.of - left;
  return status;
}

class LoadedTfliteSide final : public TfliteSide {
 public:
  static Result<std::unique_ptr<LoadedTfliteSide>> Create(
      const std::shared_ptr<const TfliteFunctions>& library, const std::string& path, int threads) {
    // Some versions refuse a whole model for uint8 that they were asked to take.
    for (const uint32_t flags :
         {XnnpackOptions::kInt8 | XnnpackOptions::kUint8, XnnpackOptions::kInt8}) {
      if (library->xnnpack_create == nullptr) break;
      Result<std::unique_ptr<LoadedTfliteSide>> side = Create(library, path, threads, &flags);
      if (side.ok() && (*side)->xnnpack_nodes_ > 0) return side;
    }
    return Create(library, path, threads, nullptr);
  }
  ~LoadedTfliteSide() override {
    if (interpreter_ != nullptr) functions_->TfLiteInterpreterDelete(interpreter_);
    if (options_ != nullptr) functions_->TfLiteInterpreterOptionsDelete(options_);
    if (delegate_ != nullptr) {
      delegate_->Prepare = taken.prepare;
      functions_->xnnpack_delete(delegate_);
    }
    if (model_ != nullptr) functions_->TfLiteModelDelete(model_);
  }
  Status Invoke() override {
    if (functions_->TfLiteInterpreterInvoke(interpreter_) == kTfLiteOk) return Status();
    return InternalError("TensorFlow Lite: the invocation failed: %s", said_.c_str());
  }
  TfLiteType input_type(int index) const override {
    return functions_->TfLiteTensorType(
        functions_->TfLiteInterpreterGetInputTensor(interpreter_, index));
  }

 private:
  explicit LoadedTfliteSide(std::shared_ptr<const TfliteFunctions> functions)
      : functions_(std::move(functions)) {}

  // With XNNPACK if there are `xnnpack_flags`.
  static Result<std::unique_ptr<LoadedTfliteSide>> Create(
      const std::shared_ptr<const TfliteFunctions>& library, const std::string& path, int threads,
      const uint32_t* xnnpack_flags) {
    std::unique_ptr<LoadedTfliteSide> side(new LoadedTfliteSide(library));
    const TfliteFunctions& functions = *library;
    side->model_ = functions.TfLiteModelCreateFromFile(path.c_str());
    if (side->model_ == nullptr) {
      return CorruptModel("TensorFlow Lite cannot read model '%s'", path.c_str());
    }
    side->options_ = functions.TfLiteInterpreterOptionsCreate();
    functions.TfLiteInterpreterOptionsSetNumThreads(side->options_, threads);
    functions.TfLiteInterpreterOptionsSetErrorReporter(side->options_, Keep, &side->said_);
    if (xnnpack_flags != nullptr) {
      const XnnpackOptions options = {.num_threads = threads, .flags = *xnnpack_flags};
      side->delegate_ = functions.xnnpack_create(&options);
      if (side->delegate_ == nullptr) return Unsupported("there is no XNNPACK for this CPU");
      taken = {.prepare = std::exchange(side->delegate_->Prepare, PrepareAndCount)};
      functions.TfLiteInterpreterOptionsAddDelegate(side->options_, side->delegate_);
    }
    side->interpreter_ = functions.TfLiteInterpreterCreate(side->model_, side->options_);
    if (side->interpreter_ == nullptr ||
        functions.TfLiteInterpreterAllocateTensors(side->interpreter_) != kTfLiteOk) {
      return Unsupported("TensorFlow Lite cannot run model '%s': %s", path.c_str(),
                         side->said_.c_str());
    }
    if (xnnpack_flags != nullptr) {
      side->xnnpack_nodes_ = taken.nodes;
      side->nodes_ = taken.of;
    }
    TfLiteInterpreter* const interpreter = side->interpreter_;
    for (int i = 0; i < functions.TfLiteInterpreterGetInputTensorCount(interpreter); ++i) {
      TfLiteTensor* const tensor = functions.TfLiteInterpreterGetInputTensor(interpreter, i);
      side->inputs_.emplace_back(static_cast<uint8_t*>(functions.TfLiteTensorData(tensor)),
                                 functions.TfLiteTensorByteSize(tensor));
    }
    for (int i = 0; i < functions.TfLiteInterpreterGetOutputTensorCount(interpreter); ++i) {
      const TfLiteTensor* const tensor = functions.TfLiteInterpreterGetOutputTensor(interpreter, i);
      side->outputs_.emplace_back(static_cast<const uint8_t*>(functions.TfLiteTensorData(tensor)),
                                  functions.TfLiteTensorByteSize(tensor));
    }
    return side;
  }
  static void Keep(void* user_data, const char* format, va_list args) {
    char text[512];
    std::vsnprintf(text, sizeof(text), format, args);
    *static_cast<std::string*>(user_data) = text;
  }

  const std::shared_ptr<const TfliteFunctions> functions_;
  TfLiteModel* model_ = nullptr;
  TfLiteInterpreterOptions* options_ = nullptr;
  TfLiteDelegate* delegate_ = nullptr;
  TfLiteInterpreter* interpreter_ = nullptr;
  std::string said_;  // what was reported last
};

}  // namespace

Result<AtollLibrary> AtollLibrary::Open(const std::string& path) {
  ATOLL_ASSIGN_OR_RETURN(const AtollFunctions functions, AtollFunctions::Find(path));
  return AtollLibrary(std::make_shared<const AtollFunctions>(functions));
}

const char* AtollLibrary::Version() const { return functions_->AtollVersion(); }

Result<const char*> AtollLibrary::Kernels() const {
  const char* kernels = "";
  if (functions_->AtollCpuName(&kernels) == ATOLL_OK) return kernels;
  return Unsupported("%s", functions_->AtollLastError());
}

Result<std::unique_ptr<Side>> AtollLibrary::Load(const std::string& model, int threads) const {
  ATOLL_ASSIGN_OR_RETURN(auto side, AtollSide::Create(functions_, model, threads));
  return std::unique_ptr<Side>(std::move(side));
}

Result<TfliteLibrary> TfliteLibrary::Open(const std::string& path) {
  ATOLL_ASSIGN_OR_RETURN(const TfliteFunctions functions, TfliteFunctions::Find(path));
  return TfliteLibrary(std::make_shared<const TfliteFunctions>(functions));
}

const char* TfliteLibrary::Version() const { return functions_->TfLiteVersion(); }

Result<std::unique_ptr<TfliteSide>> TfliteLibrary::Load(const std::string& model,
                                                        int threads) const {
  ATOLL_ASSIGN_OR_RETURN(auto side, LoadedTfliteSide::Create(functions_, model, threads));
  return std::unique_ptr<TfliteSide>(std::move(side));
}

}  // namespace atollrt

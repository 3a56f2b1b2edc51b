// SPDX-License-Identifier: Apache-2.0
//
// libedgetpu.so.1 as programs call it, in C and C++: what there is, what it means, and what becomes
// of calls that cannot work. The suites OnACoral run where a stand-in for libusb has a Coral on its
// bus (tools/coral-stub of the reference data), the others where nothing is plugged in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "compat/edgetpu/edgetpu.h"
#include "compat/edgetpu/edgetpu_c.h"
#include "compat/tensorflowlite_c/c_api.h"
#include "tests/support/absent.h"
#include "tflite_generated.h"

namespace {

using edgetpu::DeviceType;
using edgetpu::EdgeTpuContext;
using edgetpu::EdgeTpuManager;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::SizeIs;
using Record = EdgeTpuManager::DeviceEnumerationRecord;
using Options = std::vector<std::pair<const char*, const char*>>;

constexpr char kFashion[] = ATOLL_SOURCE_DIR "/models/fashion/fashion_int8.tflite";
constexpr char kDense[] = ATOLL_SHARED_DIR "/models/edgetpu/libredgetpu_dense_256_edgetpu.tflite";

EdgeTpuManager& TheManager() { return *EdgeTpuManager::GetSingleton(); }

struct PluginDestroy {
  void operator()(TfLiteDelegate* delegate) const { tflite_plugin_destroy_delegate(delegate); }
};
using DelegatePtr = std::unique_ptr<TfLiteDelegate, PluginDestroy>;

thread_local std::string reported;
void Report(const char* message) { reported = message; }

// What a runtime does with the options of a program.
DelegatePtr Plugin(const Options& options) {
  std::vector<char*> keys;
  std::vector<char*> values;
  for (const auto& [key, value] : options) {
    keys.push_back(const_cast<char*>(key));
    values.push_back(const_cast<char*>(value));
  }
  reported.clear();
  return DelegatePtr(
      tflite_plugin_create_delegate(keys.data(), values.data(), keys.size(), Report));
}

bool IsPluggedIn() {
  const char* const mode = std::getenv("FAKEUSB_MODE");
  return mode != nullptr && std::strcmp(mode, "app") == 0;
}

class Surroundings : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* const name : {"ATOLL_DEVICE", "ATOLL_EDGETPU_EMULATE", "ATOLL_MODEL_PATH"}) {
      unsetenv(name);
    }
    TheManager().SetVerbosity(0);
  }
};

class NothingThere : public Surroundings {
 protected:
  void SetUp() override {
    Surroundings::SetUp();
    if (IsPluggedIn() || !TheManager().EnumerateEdgeTpu().empty()) {
      GTEST_SKIP() << "a Coral is there, which edgetpu_api_test/on_a_coral is about";
    }
  }
};

class Emulated : public NothingThere {
 protected:
  void SetUp() override {
    NothingThere::SetUp();
    setenv("ATOLL_EDGETPU_EMULATE", "1", 1);
  }
};

class OnACoral : public Surroundings {
 protected:
  void SetUp() override {
    Surroundings::SetUp();
    if (!IsPluggedIn()) GTEST_SKIP() << "none is plugged in; edgetpu_api_test/on_a_coral has one";
    if (TheManager().EnumerateEdgeTpu().empty()) {
      atollrt::ReportAbsent("reference data: tools/coral-stub, in place of libusb");
      GTEST_SKIP();
    }
  }
};

// ---- What runs in place of a runtime ------------------------------------------------------------

// A runtime with one operator, that for an Edge TPU of a model file, as TensorFlow Lite calls
// delegates and kernels: memory of exactly the size of each tensor, and whatever is wrong with it.
class OneOperator {
 public:
  explicit OneOperator(const char* path) {
    std::ifstream stream(path, std::ios::binary);
    file_.assign(std::istreambuf_iterator<char>(stream), {});
    const auto* const model = atollrt::tflite::GetModel(file_.data());
    const auto* const graph = model->subgraphs()->Get(0);
    const auto* const op = graph->operators()->Get(0);
    package.assign(op->custom_options()->begin(), op->custom_options()->end());
    for (const auto* const list : {op->inputs(), op->outputs()}) {
      for (const int32_t index : *list) {
        const auto* const from = graph->tensors()->Get(index);
        TfLiteTensor& tensor = tensors_.emplace_back();
        tensor.type = from->type() == 3 ? kTfLiteUInt8 : kTfLiteInt8;
        tensor.allocation_type = kTfLiteArenaRw;
        tensor.name = from->name()->c_str();
        tensor.buffer_handle = -1;
        tensor.quantization = {kTfLiteAffineQuantization, Quantization()};
        SetDims(&tensor, {from->shape()->begin(), from->shape()->end()});
      }
    }
    inputs_ = Array(0, static_cast<int>(op->inputs()->size()));
    outputs_ = Array(static_cast<int>(op->inputs()->size()), static_cast<int>(tensors_.size()));
    node.inputs = inputs_.get();
    node.outputs = outputs_.get();
    node.custom_initial_data = package.data();
    node.custom_initial_data_size = static_cast<int>(package.size());
    original_.builtin_code = 32;
    original_.custom_name = "edgetpu-custom-op";
    original_.version = 1;
    context.tensors_size = tensors_.size();
    context.GetExecutionPlan = Plan;
    context.tensors = tensors_.data();
    context.impl_ = this;
    context.ResizeTensor = Resize;
    context.ReportError = Say;
    context.GetNodeAndRegistration = GetNode;
    context.ReplaceNodeSubsetsWithDelegateKernels = Replace;
    context.recommended_num_threads = -1;
    context.GetExternalContext = GetExternal;
    context.SetExternalContext = SetExternal;
    context.PreviewDelegatePartitioning = Preview;
  }
  ~OneOperator() {
    if (kernel_.free != nullptr) kernel_.free(&context, node.user_data);
    for (TfLiteTensor& tensor : tensors_) std::free(tensor.dims);
  }
  OneOperator(const OneOperator&) = delete;

  // The kernel that a resolver has for it.
  void Resolve(const TfLiteRegistration& registration) {
    kernel_ = registration;
    node.user_data =
        kernel_.init(&context, reinterpret_cast<const char*>(package.data()), package.size());
  }
  TfLiteStatus Apply(TfLiteDelegate* delegate) { return delegate->Prepare(&context, delegate); }
  TfLiteStatus Prepare() {
    const TfLiteStatus status = kernel_.prepare(&context, &node);
    // As an arena does: other addresses after each allocation.
    memory_.clear();
    for (TfLiteTensor& tensor : tensors_) {
      memory_.push_back(std::make_unique<uint8_t[]>(tensor.bytes));
      tensor.data.uint8 = memory_.back().get();
    }
    return status;
  }
  TfLiteStatus Invoke() { return kernel_.invoke(&context, &node); }

  TfLiteTensor* input() { return &tensors_[inputs_->data[0]]; }
  TfLiteTensor* output() { return &tensors_[outputs_->data[0]]; }
  const TfLiteRegistration& kernel() const { return kernel_; }

  TfLiteContext context = {};
  TfLiteNode node = {};
  std::vector<uint8_t> package;
  TfLiteExternalContext* external = nullptr;
  std::string said;

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  using ArrayPtr = std::unique_ptr<TfLiteIntArray, Free>;

  static ArrayPtr Array(int begin, int end) {
    ArrayPtr array(
        static_cast<TfLiteIntArray*>(std::malloc(sizeof(int) * (1 + size_t(end - begin)))));
    array->size = end - begin;
    for (int i = begin; i < end; ++i) array->data[i - begin] = i;
    return array;
  }
  static TfLiteAffineQuantization* Quantization() {
    static float scale[2] = {};
    static int zero[2] = {1, 0};
    const int one = 1;
    std::memcpy(&scale[0], &one, sizeof(one));
    scale[1] = 0.5f;
    static TfLiteAffineQuantization quantization = {reinterpret_cast<TfLiteFloatArray*>(scale),
                                                    reinterpret_cast<TfLiteIntArray*>(zero), 0};
    return &quantization;
  }
  static void SetDims(TfLiteTensor* tensor, const std::vector<int>& dims) {
    std::free(tensor->dims);
    tensor->dims = static_cast<TfLiteIntArray*>(std::malloc(sizeof(int) * (1 + dims.size())));
    tensor->dims->size = static_cast<int>(dims.size());
    std::copy(dims.begin(), dims.end(), tensor->dims->data);
    tensor->bytes = 1;
    for (const int dim : dims) tensor->bytes *= static_cast<size_t>(dim);
  }
  static OneOperator* Of(TfLiteContext* context) {
    return static_cast<OneOperator*>(context->impl_);
  }
  static TfLiteStatus Plan(TfLiteContext* context, TfLiteIntArray** plan) {
    Of(context)->plan_ = Array(0, 1);
    *plan = Of(context)->plan_.get();
    return kTfLiteOk;
  }
  static TfLiteStatus Resize(TfLiteContext*, TfLiteTensor* tensor, TfLiteIntArray* dims) {
    SetDims(tensor, {dims->data, dims->data + dims->size});
    std::free(dims);
    return kTfLiteOk;
  }
  static void Say(TfLiteContext* context, const char* format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    std::vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    Of(context)->said = text;
  }
  static TfLiteStatus GetNode(TfLiteContext* context, int index, TfLiteNode** node,
                              TfLiteRegistration** registration) {
    if (index != 0) return kTfLiteError;
    *node = &Of(context)->node;
    *registration = &Of(context)->original_;
    return kTfLiteOk;
  }
  static TfLiteStatus Replace(TfLiteContext* context, TfLiteRegistration registration,
                              const TfLiteIntArray* nodes, TfLiteDelegate* delegate) {
    OneOperator* const self = Of(context);
    if (nodes->size == 0) return kTfLiteOk;
    self->kernel_ = registration;
    TfLiteDelegateParams params = {delegate, const_cast<TfLiteIntArray*>(nodes),
                                   self->inputs_.get(), self->outputs_.get()};
    self->node.user_data = registration.init(context, reinterpret_cast<const char*>(&params), 0);
    return kTfLiteOk;
  }
  static TfLiteStatus Preview(TfLiteContext* context, const TfLiteIntArray* nodes,
                              TfLiteDelegateParams** partitions, int* count) {
    OneOperator* const self = Of(context);
    self->preview_ = {nullptr, const_cast<TfLiteIntArray*>(nodes), self->inputs_.get(),
                      self->outputs_.get()};
    *partitions = &self->preview_;
    *count = nodes->size > 0 ? 1 : 0;
    return kTfLiteOk;
  }
  static TfLiteExternalContext* GetExternal(TfLiteContext* context, int type) {
    return type == kTfLiteEdgeTpuContext ? Of(context)->external : nullptr;
  }
  static void SetExternal(TfLiteContext* context, int type, TfLiteExternalContext* external) {
    if (type == kTfLiteEdgeTpuContext) Of(context)->external = external;
  }

  std::vector<char> file_;
  std::vector<TfLiteTensor> tensors_;
  std::vector<std::unique_ptr<uint8_t[]>> memory_;
  ArrayPtr inputs_;
  ArrayPtr outputs_;
  ArrayPtr plan_;
  TfLiteDelegateParams preview_ = {};
  TfLiteRegistration original_ = {};
  TfLiteRegistration kernel_ = {};
};

// Skips where the reference data are absent.
#define NEED_DENSE()                                                 \
  if (!std::filesystem::exists(kDense)) {                            \
    atollrt::ReportAbsent(std::string("reference data: ") + kDense); \
    GTEST_SKIP();                                                    \
  }

// ---- Versions, slots ----------------------------------------------------------------------------

TEST_F(Surroundings, TheVersionSaysWhichPackagesRun) {
  EXPECT_THAT(edgetpu_version(), MatchesRegex("BuildLabel\\(COMPILER=.+,DATE=.+,TIME=.+\\), "
                                              "RuntimeVersion\\(14\\)"));
  EXPECT_EQ(TheManager().Version(), edgetpu_version());
}

TEST_F(Surroundings, VerbosityIsFromNoneToTen) {
  EXPECT_EQ(TheManager().SetVerbosity(-1), kTfLiteError);
  EXPECT_EQ(TheManager().SetVerbosity(11), kTfLiteError);
  EXPECT_EQ(TheManager().SetVerbosity(10), kTfLiteOk);
  EXPECT_EQ(TheManager().SetVerbosity(0), kTfLiteOk);
  edgetpu_verbosity(100);
}

TEST_F(Surroundings, TypesHaveNames) {
  std::ostringstream stream;
  stream << DeviceType::kApexPci << ", " << DeviceType::kApexUsb << ", "
         << static_cast<DeviceType>(7);
  EXPECT_EQ(stream.str(), "Apex (PCIe), Apex (USB), Unknown");
}

// As many as are asked for, each a device by itself.
TEST_F(Emulated, SeveralDevices) {
  setenv("ATOLL_EDGETPU_EMULATE", "3", 1);
  const auto usb = DeviceType::kApexUsb;
  EXPECT_THAT(TheManager().EnumerateEdgeTpu(),
              ElementsAre(Record{usb, "emu"}, Record{usb, "emu#1"}, Record{usb, "emu#2"}));
  const auto first = TheManager().OpenDevice(usb, "emu");
  const auto second = TheManager().OpenDevice(usb, ":1");
  const auto third = TheManager().NewEdgeTpuContext(usb, "emu#2");
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  ASSERT_NE(third, nullptr);
  EXPECT_NE(first, second);
  EXPECT_EQ(second->GetDeviceEnumRecord(), (Record{usb, "emu#1"}));
  EXPECT_EQ(TheManager().OpenDevice(usb, "emu#1"), second);
  EXPECT_EQ(TheManager().OpenDevice(usb, ":2"), nullptr);  // it belongs to its owner
  EXPECT_EQ(TheManager().OpenDevice(usb, ":3"), nullptr);
  EXPECT_EQ(TheManager().OpenDevice(usb, "emu#3"), nullptr);
  EXPECT_EQ(TheManager().OpenDevice(usb, "emu#x"), nullptr);
  for (const auto& [value, count] :
       {std::pair("0", 0u), {"", 0u}, {"1", 1u}, {"yes", 1u}, {"99999999999999999999", 16u}}) {
    setenv("ATOLL_EDGETPU_EMULATE", value, 1);
    EXPECT_EQ(TheManager().EnumerateEdgeTpu().size(), count) << value;
  }
}

// Programs are compiled to call numbers, not names: those that were seen in Google's library.
TEST_F(Emulated, FunctionsAreInTheirSlots) {
  static_assert(sizeof(Record) == 40);
  static_assert(sizeof(EdgeTpuContext) == 24);
  EdgeTpuManager* const manager = EdgeTpuManager::GetSingleton();
  void** const slots = *reinterpret_cast<void***>(manager);
  const auto enumerate = reinterpret_cast<std::vector<Record> (*)(const EdgeTpuManager*)>(slots[4]);
  EXPECT_THAT(enumerate(manager), ElementsAre(Record{DeviceType::kApexUsb, "emu"}));
  using Shared = std::shared_ptr<EdgeTpuContext>;
  using Exclusive = std::unique_ptr<EdgeTpuContext>;
  const std::string path = "emu";
  const EdgeTpuManager::DeviceOptions options = {{"Performance", "Low"}};
  const auto usb = DeviceType::kApexUsb;
  {
    const Exclusive all[] = {
        reinterpret_cast<Exclusive (*)(EdgeTpuManager*)>(slots[0])(manager),
        reinterpret_cast<Exclusive (*)(EdgeTpuManager*, DeviceType)>(slots[1])(manager, usb)};
    EXPECT_NE(all[0], nullptr);
    EXPECT_EQ(all[1], nullptr);  // the only one is taken
  }
  EXPECT_NE((reinterpret_cast<Exclusive (*)(EdgeTpuManager*, DeviceType, const std::string&)>(
                slots[2])(manager, usb, path)),
            nullptr);
  EXPECT_NE((reinterpret_cast<Exclusive (*)(EdgeTpuManager*, DeviceType, const std::string&,
                                            const EdgeTpuManager::DeviceOptions&)>(slots[3])(
                manager, usb, path, options)),
            nullptr);
  const auto open = reinterpret_cast<Shared (*)(EdgeTpuManager*)>(slots[5]);
  const Shared context = open(manager);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ((reinterpret_cast<Shared (*)(EdgeTpuManager*, DeviceType)>(slots[6])(manager, usb)),
            context);
  EXPECT_EQ((reinterpret_cast<Shared (*)(EdgeTpuManager*, DeviceType, const std::string&)>(
                slots[7])(manager, usb, path)),
            context);
  EXPECT_EQ((reinterpret_cast<Shared (*)(EdgeTpuManager*, DeviceType, const std::string&,
                                         const EdgeTpuManager::DeviceOptions&)>(slots[8])(
                manager, usb, path, options)),
            context);
  EXPECT_THAT(reinterpret_cast<std::vector<Shared> (*)(const EdgeTpuManager*)>(slots[9])(manager),
              ElementsAre(context));
  EXPECT_EQ(reinterpret_cast<int (*)(EdgeTpuManager*, int)>(slots[10])(manager, 11), 1);
  EXPECT_EQ(reinterpret_cast<std::string (*)(const EdgeTpuManager*)>(slots[11])(manager),
            edgetpu_version());

  const char* const object = reinterpret_cast<const char*>(context.get());
  EXPECT_EQ(reinterpret_cast<const char*>(static_cast<TfLiteExternalContext*>(context.get())),
            object + 8);
  EXPECT_EQ(*reinterpret_cast<const int*>(object + 8), kTfLiteEdgeTpuContext);
  void** const of_context = *reinterpret_cast<void** const*>(object);
  EXPECT_EQ(reinterpret_cast<const Record& (*)(const void*)>(of_context[2])(object),
            (Record{DeviceType::kApexUsb, "emu"}));
  EXPECT_THAT(
      reinterpret_cast<EdgeTpuManager::DeviceOptions (*)(const void*)>(of_context[3])(object),
      ElementsAre(std::pair<const std::string, std::string>("IsReady", "")));
  EXPECT_TRUE(reinterpret_cast<bool (*)(const void*)>(of_context[4])(object));
  // Slot 1 ends and deletes it, as a unique_ptr of a program does.
  EdgeTpuContext* const owned = manager->NewEdgeTpuContext(usb, "emu:usb2").release();
  ASSERT_NE(owned, nullptr);
  reinterpret_cast<void (*)(void*)>((*reinterpret_cast<void***>(owned))[1])(owned);
}

// ---- Which device -------------------------------------------------------------------------------

TEST_F(NothingThere, NothingIsMade) {
  size_t count = 7;
  EXPECT_EQ(edgetpu_list_devices(&count), nullptr);
  EXPECT_EQ(count, 0u);
  edgetpu_free_devices(nullptr);
  for (const int type : {0, 1, 2, -1, 1000}) {
    const auto of_type = static_cast<edgetpu_device_type>(type);
    EXPECT_EQ(edgetpu_create_delegate(of_type, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(edgetpu_create_delegate(of_type, "/sys/bus/usb/devices/2-1", nullptr, 0), nullptr);
    EXPECT_EQ(edgetpu_create_delegate(of_type, "/dev/apex_0", nullptr, 0), nullptr);
    EXPECT_EQ(edgetpu_create_delegate(of_type, "", nullptr, 0), nullptr);
    EXPECT_EQ(edgetpu_create_delegate(of_type, "nonsense", nullptr, 0), nullptr);
  }
  EXPECT_EQ(TheManager().OpenDevice(), nullptr);
  EXPECT_EQ(TheManager().OpenDevice(DeviceType::kApexPci), nullptr);
  EXPECT_EQ(TheManager().OpenDevice(static_cast<DeviceType>(9)), nullptr);
  EXPECT_EQ(TheManager().NewEdgeTpuContext(), nullptr);
  EXPECT_EQ(TheManager().NewEdgeTpuContext(DeviceType::kApexUsb, "/sys/bus/usb/devices/1-1"),
            nullptr);
  EXPECT_THAT(TheManager().GetOpenedDevices(), IsEmpty());
}

TEST_F(NothingThere, ThePluginSaysWhatCanBeDone) {
  for (const char* const device : {"", ":0", "usb", "usb:0", "usb:1", "pci", "pci:0", ":1"}) {
    EXPECT_EQ(Plugin({{"device", device}}), nullptr) << device;
    EXPECT_THAT(reported, HasSubstr("no Edge TPU")) << device;
    EXPECT_THAT(reported, HasSubstr("ATOLL_EDGETPU_EMULATE")) << device;
  }
  EXPECT_EQ(Plugin({}), nullptr);
  EXPECT_EQ(Plugin({{"device", "Usb"}}), nullptr);
  EXPECT_THAT(reported, HasSubstr("Usb"));
}

TEST_F(NothingThere, NothingCrashesForNull) {
  EXPECT_EQ(edgetpu_list_devices(nullptr), nullptr);
  EXPECT_EQ(tflite_plugin_create_delegate(nullptr, nullptr, 0, nullptr), nullptr);
  EXPECT_EQ(tflite_plugin_create_delegate(nullptr, nullptr, 3, Report), nullptr);
  char* nothing[1] = {nullptr};
  EXPECT_EQ(tflite_plugin_create_delegate(nothing, nothing, 1, Report), nullptr);
  EXPECT_EQ(edgetpu_create_delegate(EDGETPU_APEX_USB, "x", nullptr, 1), nullptr);
  const edgetpu_option option = {nullptr, nullptr};
  EXPECT_EQ(edgetpu_create_delegate(EDGETPU_APEX_USB, nullptr, &option, 1), nullptr);
  EXPECT_EQ(edgetpu_create_delegate(EDGETPU_APEX_USB, "x", &option, 1), nullptr);
  tflite_plugin_destroy_delegate(nullptr);
  edgetpu_free_delegate(nullptr);
}

TEST_F(Emulated, IsOneOfTheDevices) {
  size_t count = 0;
  edgetpu_device* const devices = edgetpu_list_devices(&count);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(devices[0].type, EDGETPU_APEX_USB);
  EXPECT_STREQ(devices[0].path, "emu");
  TfLiteDelegate* const delegate =
      edgetpu_create_delegate(devices[0].type, devices[0].path, nullptr, 0);
  EXPECT_NE(delegate, nullptr);
  edgetpu_free_devices(devices);
  edgetpu_free_delegate(delegate);
  EXPECT_EQ(edgetpu_create_delegate(EDGETPU_APEX_PCI, "emu", nullptr, 0), nullptr);
  const edgetpu_option option = {"Performance", "Fast"};
  EXPECT_EQ(edgetpu_create_delegate(EDGETPU_APEX_USB, "emu", &option, 1), nullptr);
  setenv("ATOLL_EDGETPU_EMULATE", "0", 1);
  EXPECT_THAT(TheManager().EnumerateEdgeTpu(), IsEmpty());
}

TEST_F(Emulated, HasGooglesNamesAndOurs) {
  for (const char* const device :
       {"", ":0", "usb", "usb:0", ":00", "emu", "emu:usb2", "auto", "cpu"}) {
    EXPECT_NE(Plugin({{"device", device}}), nullptr) << device << ": " << reported;
  }
  for (const char* const device :
       {":", ":1", ":-1", ":x", "usb:", "usb:1", "usb:9-9", "usb:-1", "usb1", "pci", "pci:0", "EMU",
        "emu:nothing", "/dev/apex_0", " ", ":99999999999999999999", "emu,", "usb:0 "}) {
    EXPECT_EQ(Plugin({{"device", device}}), nullptr) << device;
    EXPECT_NE(reported, "") << device;
  }
}

TEST_F(Emulated, OptionsOfADeviceThatIsNamedAreChecked) {
  EXPECT_NE(Plugin({{"device", ":0"}, {"Performance", "Low"}}), nullptr);
  EXPECT_NE(Plugin({{"device", "usb:0"},
                    {"Performance", "Medium"},
                    {"Usb.AlwaysDfu", "True"},
                    {"Usb.MaxBulkInQueueLength", "256"}}),
            nullptr);
  EXPECT_NE(Plugin({{"device", "emu"}, {"Performance", "Max"}, {"no such option", "x"}}), nullptr);
  const Options wrong = {{"Performance", "low"},
                         {"Performance", ""},
                         {"Usb.AlwaysDfu", "1"},
                         {"Usb.MaxBulkInQueueLength", "257"},
                         {"Usb.MaxBulkInQueueLength", "-1"},
                         {"Usb.MaxBulkInQueueLength", "x"}};
  for (const auto& option : wrong) {
    EXPECT_EQ(Plugin({{"device", ":0"}, option}), nullptr) << option.first << option.second;
    EXPECT_THAT(reported, HasSubstr(option.first));
    // Google's library does not look at them here.
    EXPECT_NE(Plugin({option}), nullptr) << option.first << option.second;
    EXPECT_NE(Plugin({{"device", "usb"}, option}), nullptr) << option.first << option.second;
  }
}

TEST_F(Emulated, TheCountOfOptionsIsAnInt) {
  char key[] = "device";
  char value[] = "usb:1";
  char* keys[] = {key};
  char* values[] = {value};
  EXPECT_EQ(tflite_plugin_create_delegate(keys, values, (size_t{0xDEADBEEF} << 32) | 1, Report),
            nullptr);
  EXPECT_NE(
      DelegatePtr(tflite_plugin_create_delegate(keys, values, size_t{0xDEADBEEF} << 32, Report)),
      nullptr);
}

TEST_F(NothingThere, TheEnvironmentSaysWhatAnyDeviceIs) {
  setenv("ATOLL_DEVICE", "emu", 1);
  EXPECT_NE(Plugin({}), nullptr) << reported;
  EXPECT_NE(Plugin({{"device", ""}}), nullptr) << reported;
  EXPECT_EQ(Plugin({{"device", "usb"}}), nullptr);
  const auto context = TheManager().OpenDevice();
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(context->GetDeviceEnumRecord(), (Record{DeviceType::kApexUsb, "emu"}));
  EXPECT_THAT(TheManager().EnumerateEdgeTpu(), IsEmpty());
  setenv("ATOLL_DEVICE", "usb", 1);
  EXPECT_EQ(Plugin({}), nullptr);
  setenv("ATOLL_DEVICE", "nonsense", 1);
  EXPECT_EQ(Plugin({}), nullptr);
  EXPECT_THAT(reported, HasSubstr("nonsense"));
}

TEST_F(NothingThere, AStandInModelIsEnough) {
  setenv("ATOLL_MODEL_PATH", "/nowhere", 1);
  for (const char* const device : {"", ":0", "usb", "usb:0", "pci", "pci:0"}) {
    EXPECT_NE(Plugin({{"device", device}}), nullptr) << device;
  }
  EXPECT_EQ(Plugin({{"device", ":1"}}), nullptr);
  EXPECT_EQ(Plugin({{"device", "usb:2-3"}}), nullptr);
  EXPECT_THAT(TheManager().EnumerateEdgeTpu(), IsEmpty());
  EXPECT_NE(TheManager().OpenDevice(DeviceType::kApexUsb), nullptr);
}

TEST_F(Emulated, IsSharedOrOnesOwn) {
  auto first = TheManager().OpenDevice();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(TheManager().OpenDevice(DeviceType::kApexUsb, "emu"), first);
  EXPECT_EQ(TheManager().OpenDevice(DeviceType::kApexPci), nullptr);
  EXPECT_EQ(TheManager().NewEdgeTpuContext(), nullptr);
  const DelegatePtr delegate = Plugin({});
  EXPECT_THAT(TheManager().GetOpenedDevices(), ElementsAre(first));
  first.reset();  // the delegate keeps it
  EXPECT_THAT(TheManager().GetOpenedDevices(), SizeIs(1));
  EXPECT_EQ(TheManager().NewEdgeTpuContext(), nullptr);
}

TEST_F(Emulated, WhoHasItAloneHasItAlone) {
  auto own = TheManager().NewEdgeTpuContext(DeviceType::kApexUsb, "emu", {{"Performance", "Low"}});
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own->GetDeviceOptions(),
            (EdgeTpuManager::DeviceOptions{
                {"Performance", "Low"}, {"IsReady", ""}, {"ExclusiveOwnership", ""}}));
  EXPECT_THAT(TheManager().GetOpenedDevices(), IsEmpty());
  EXPECT_EQ(TheManager().OpenDevice(), nullptr);
  EXPECT_EQ(TheManager().NewEdgeTpuContext(), nullptr);
  EXPECT_EQ(Plugin({}), nullptr);
  EXPECT_THAT(reported, HasSubstr("another part of this program"));
  own.reset();
  EXPECT_NE(TheManager().OpenDevice(), nullptr);
}

TEST_F(Emulated, ThreadsOpenAndCloseIt) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int turn = 0; turn < 25; ++turn) {
        if (i % 2 == 0) {
          const auto context = TheManager().OpenDevice();
          EXPECT_NE(context, nullptr);
          EXPECT_TRUE(context->IsReady());
        } else {
          EXPECT_NE(Plugin({{"device", ":0"}}), nullptr) << reported;
          TheManager().GetOpenedDevices();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(TheManager().GetOpenedDevices(), IsEmpty());
}

// ---- Over libtensorflowlite_c -------------------------------------------------------------------

struct Interpreter {
  // `delegate` may be null.
  Interpreter(const char* path, TfLiteDelegate* delegate) {
    TfLiteModel* const model = TfLiteModelCreateFromFile(path);
    TfLiteInterpreterOptions* const options = TfLiteInterpreterOptionsCreate();
    if (delegate != nullptr) TfLiteInterpreterOptionsAddDelegate(options, delegate);
    handle = TfLiteInterpreterCreate(model, options);
    TfLiteInterpreterOptionsDelete(options);
    TfLiteModelDelete(model);
    EXPECT_NE(handle, nullptr);
    EXPECT_EQ(TfLiteInterpreterAllocateTensors(handle), kTfLiteOk);
  }
  ~Interpreter() { TfLiteInterpreterDelete(handle); }
  Interpreter(const Interpreter&) = delete;

  std::vector<uint8_t> Run(uint8_t fill) {
    TfLiteTensor* const input = TfLiteInterpreterGetInputTensor(handle, 0);
    std::vector<uint8_t> bytes(TfLiteTensorByteSize(input));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * fill);
    EXPECT_EQ(TfLiteTensorCopyFromBuffer(input, bytes.data(), bytes.size()), kTfLiteOk);
    EXPECT_EQ(TfLiteInterpreterInvoke(handle), kTfLiteOk);
    const TfLiteTensor* const output = TfLiteInterpreterGetOutputTensor(handle, 0);
    std::vector<uint8_t> result(TfLiteTensorByteSize(output));
    EXPECT_EQ(TfLiteTensorCopyToBuffer(output, result.data(), result.size()), kTfLiteOk);
    return result;
  }

  TfLiteInterpreter* handle;
};

TEST_F(Emulated, InterpretersOfManyThreadsShareIt) {
  std::vector<std::vector<uint8_t>> wanted;
  for (uint8_t fill = 0; fill < 4; ++fill) {
    wanted.push_back(Interpreter(kFashion, nullptr).Run(fill));
  }
  const DelegatePtr delegate = Plugin({});
  std::vector<std::thread> threads;
  for (uint8_t fill = 0; fill < 4; ++fill) {
    threads.emplace_back([&, fill] {
      const DelegatePtr own = Plugin({{"device", ":0"}});
      Interpreter interpreter(kFashion, fill % 2 == 0 ? delegate.get() : own.get());
      for (int turn = 0; turn < 5; ++turn) EXPECT_EQ(interpreter.Run(fill), wanted[fill]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- The operator -------------------------------------------------------------------------------

TEST_F(OnACoral, IsListedByItsPort) {
  EXPECT_THAT(TheManager().EnumerateEdgeTpu(),
              ElementsAre(Record{DeviceType::kApexUsb, "/sys/bus/usb/devices/2-3"}));
  // An emulated one comes behind it.
  setenv("ATOLL_EDGETPU_EMULATE", "1", 1);
  EXPECT_THAT(TheManager().EnumerateEdgeTpu(),
              ElementsAre(Record{DeviceType::kApexUsb, "/sys/bus/usb/devices/2-3"},
                          Record{DeviceType::kApexUsb, "emu"}));
}

TEST_F(OnACoral, IsOpenOnceForAllWhoAsk) {
  const auto context = TheManager().OpenDevice(DeviceType::kApexUsb, "/sys/bus/usb/devices/2-3",
                                               {{"Performance", "Low"}});
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(context->GetDeviceEnumRecord().path, "/sys/bus/usb/devices/2-3");
  EXPECT_EQ(context->GetDeviceOptions(),
            (EdgeTpuManager::DeviceOptions{{"Performance", "Low"}, {"IsReady", ""}}));
  for (const char* const device : {"", ":0", "usb", "usb:0", "usb:2-3"}) {
    EXPECT_NE(Plugin({{"device", device}}), nullptr) << device << ": " << reported;
  }
  for (const char* const name : {"usb", "usb:0", ":0", "usb:2-3"}) {
    setenv("ATOLL_DEVICE", name, 1);
    EXPECT_EQ(TheManager().OpenDevice(), context) << name;
  }
  for (const char* const device : {":1", "usb:1", "usb:2-4", "pci", "pci:0"}) {
    EXPECT_EQ(Plugin({{"device", device}}), nullptr) << device;
  }
}

TEST_F(OnACoral, ADelegateRunsPackages) {
  NEED_DENSE();
  OneOperator runtime(kDense);
  {
    const DelegatePtr delegate = Plugin({});
    ASSERT_NE(delegate, nullptr) << reported;
    ASSERT_EQ(runtime.Apply(delegate.get()), kTfLiteOk) << runtime.said;
    EXPECT_STREQ(runtime.kernel().custom_name, "EdgeTpuDelegateForCustomOp");
    ASSERT_THAT(TheManager().GetOpenedDevices(), SizeIs(1));
    EXPECT_EQ(runtime.external, TheManager().GetOpenedDevices()[0].get());
    ASSERT_EQ(runtime.Prepare(), kTfLiteOk) << runtime.said;
    ASSERT_EQ(runtime.Invoke(), kTfLiteOk) << runtime.said;
  }
  // What a kernel needs outlives the delegate, and so does what the interpreter points at.
  EXPECT_THAT(TheManager().GetOpenedDevices(), SizeIs(1));
  ASSERT_EQ(runtime.Prepare(), kTfLiteOk) << runtime.said;
  ASSERT_EQ(runtime.Invoke(), kTfLiteOk) << runtime.said;
}

TEST_F(OnACoral, ARegisteredOperatorRunsPackages) {
  NEED_DENSE();
  for (const bool with_context : {true, false}) {
    OneOperator runtime(kDense);
    auto context = TheManager().OpenDevice();
    ASSERT_NE(context, nullptr);
    runtime.Resolve(*edgetpu::RegisterCustomOp());
    if (with_context) runtime.external = context.get();
    context.reset();
    // Without a user the context has gone by now: the program is wrong, and is told so.
    if (with_context) {
      EXPECT_EQ(runtime.Prepare(), kTfLiteError);
      EXPECT_THAT(runtime.said, HasSubstr("Failed to retrieve TPU context."));
      context = TheManager().OpenDevice();
      runtime.external = context.get();
    }
    ASSERT_EQ(runtime.Prepare(), kTfLiteOk) << runtime.said;
    ASSERT_EQ(runtime.Invoke(), kTfLiteOk) << runtime.said;
    // Other memory for each inference, as nnstreamer has it.
    std::vector<uint8_t> other(runtime.output()->bytes);
    runtime.output()->data.uint8 = other.data();
    std::vector<uint8_t> frame(runtime.input()->bytes, 7);
    runtime.input()->data.uint8 = frame.data();
    ASSERT_EQ(runtime.Invoke(), kTfLiteOk) << runtime.said;
    EXPECT_NE(other, std::vector<uint8_t>(other.size()));
    ASSERT_EQ(runtime.Prepare(), kTfLiteOk) << runtime.said;
    ASSERT_EQ(runtime.Invoke(), kTfLiteOk) << runtime.said;
  }
}

TEST_F(OnACoral, WhatIsWrongIsSaid) {
  NEED_DENSE();
  const DelegatePtr delegate = Plugin({});
  const auto expect_refused = [&](OneOperator* runtime, const char* why) {
    ASSERT_EQ(runtime->Apply(delegate.get()), kTfLiteOk);
    EXPECT_EQ(runtime->Prepare(), kTfLiteError);
    EXPECT_THAT(runtime->said, HasSubstr(why));
  };
  {
    OneOperator runtime(kDense);
    runtime.node.custom_initial_data_size = 100;
    expect_refused(&runtime, "Atoll: ");
  }
  {
    OneOperator runtime(kDense);
    runtime.node.custom_initial_data = nullptr;
    runtime.node.custom_initial_data_size = 0;
    expect_refused(&runtime, "Atoll: ");
  }
  {
    OneOperator runtime(kDense);
    runtime.input()->type = kTfLiteFloat32;
    runtime.input()->bytes *= 4;
    expect_refused(&runtime, "Atoll: ");
  }
  {
    OneOperator runtime(kDense);
    ASSERT_EQ(runtime.Apply(delegate.get()), kTfLiteOk);
    ASSERT_EQ(runtime.Prepare(), kTfLiteOk) << runtime.said;
    runtime.input()->buffer_handle = 3;
    EXPECT_EQ(runtime.Invoke(), kTfLiteError);
    EXPECT_THAT(runtime.said, HasSubstr("dma-buf"));
    runtime.input()->buffer_handle = -1;
    runtime.input()->data.uint8 = nullptr;
    EXPECT_EQ(runtime.Invoke(), kTfLiteError);
    EXPECT_THAT(runtime.said, HasSubstr("has no memory"));
  }
}

TEST_F(NothingThere, AnOperatorWithoutADeviceSaysSo) {
  NEED_DENSE();
  OneOperator runtime(kDense);
  runtime.Resolve(*edgetpu::RegisterCustomOp());
  EXPECT_EQ(runtime.Invoke(), kTfLiteError);
  EXPECT_EQ(runtime.Prepare(), kTfLiteError);
  EXPECT_THAT(runtime.said, HasSubstr("Failed to retrieve TPU context. no Edge TPU"));
  TfLiteExternalContext foreign = {};
  runtime.external = &foreign;
  EXPECT_EQ(runtime.Prepare(), kTfLiteError);
  EXPECT_THAT(runtime.said, HasSubstr("no EdgeTpuContext"));
}

TEST_F(Emulated, APackageForACoralSaysThatItNeedsOne) {
  NEED_DENSE();
  const DelegatePtr delegate = Plugin({});
  OneOperator runtime(kDense);
  ASSERT_EQ(runtime.Apply(delegate.get()), kTfLiteOk);
  EXPECT_EQ(runtime.Prepare(), kTfLiteError);
  EXPECT_THAT(runtime.said, HasSubstr("Coral"));
}

}  // namespace

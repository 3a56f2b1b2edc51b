// SPDX-License-Identifier: Apache-2.0
#include "serve/inference/inference_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "serve/inference/json_text.h"
#include "serve/inference/model_files.h"
#include "tests/serve/inference/failing_folder.h"
#include "tests/support/model_builder.h"

namespace atollserve {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
namespace fs = std::filesystem;

constexpr auto kLong = 120s;
const std::string kSource = ATOLL_SOURCE_DIR;
const std::string kSimple = kSource + "/tests/models/simple.tflite";
const std::string kFashion = kSource + "/models/fashion/fashion_int8.tflite";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Folder {
 public:
  Folder() {
    std::string name = testing::TempDir() + "/inference_XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  void Put(const std::string& name, const std::string& bytes) const {
    const fs::path at = fs::path(path_) / name;
    fs::create_directories(at.parent_path());
    std::ofstream(at, std::ios::binary) << bytes;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A model that takes some milliseconds.
std::string SlowModel() {
  atollrt::ModelBuilder m;
  int32_t x = m.Input({1, 48, 48, 32});
  for (int32_t i = 0; i < 10; ++i) x = m.Conv2D(x, {.channels = 32, .kernel = 3});
  m.Output(x);
  const std::vector<uint8_t> bytes = m.Build();
  return {bytes.begin(), bytes.end()};
}

std::unique_ptr<InferenceServer> Serve(InferenceServerOptions options) {
  if (options.device == "auto") options.device = "cpu";
  auto server = InferenceServer::Create(std::move(options));
  EXPECT_TRUE(server.ok()) << server.status().message();
  return *std::move(server);
}
std::unique_ptr<InferenceServer> ServeSimple() {
  InferenceServerOptions options;
  options.models = {{"simple", kSimple}};
  return Serve(std::move(options));
}

template <typename T>
InputTensor Input(const std::string& name, DataType type, Shape shape, std::vector<T> values) {
  const auto owned = std::make_shared<const std::vector<T>>(std::move(values));
  return {.name = name,
          .type = type,
          .shape = std::move(shape),
          .bytes = {reinterpret_cast<const uint8_t*>(owned->data()), owned->size() * sizeof(T)},
          .owner = owned};
}
InferRequest SimpleRequest() {
  std::vector<int32_t> a(16), b(16, 3);
  for (int32_t i = 0; i < 16; ++i) a[static_cast<size_t>(i)] = i * 1000;
  InferRequest request;
  request.model = "simple";
  request.inputs.push_back(Input("INPUT1", DataType::kInt32, {1, 16}, b));
  request.inputs.push_back(Input("INPUT0", DataType::kInt32, {1, 16}, a));
  return request;
}
InferRequest ZeroRequest(const InferenceServer& server, const std::string& model) {
  InferRequest request;
  request.model = model;
  const auto info = server.Info(model, "");
  EXPECT_TRUE(info.ok()) << info.status().message();
  for (const TensorInfo& input : (*info)->inputs) {
    request.inputs.push_back(
        Input(input.name, input.type, input.shape, std::vector<uint8_t>(input.bytes())));
  }
  return request;
}

InferOutcome InferAndWait(InferenceServer* server, InferRequest request) {
  std::promise<InferOutcome> done;
  server->Infer(std::move(request), [&](InferOutcome outcome) { done.set_value(outcome); });
  return done.get_future().get();
}

std::vector<int32_t> Integers(const std::string& bytes) {
  std::vector<int32_t> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(InferenceServer, ComputesWhatItIsAsked) {
  const auto server = ServeSimple();
  EXPECT_TRUE(server->ready());
  const InferOutcome outcome = InferAndWait(server.get(), SimpleRequest());
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.version, "1");
  ASSERT_THAT(outcome.outputs, SizeIs(2));
  EXPECT_EQ(outcome.outputs[0].name, "OUTPUT0");
  EXPECT_EQ(Integers(outcome.outputs[0].bytes)[5], 5003);
  EXPECT_EQ(Integers(outcome.outputs[1].bytes)[5], 4997);

  InferRequest one = SimpleRequest();
  one.outputs = {"OUTPUT1"};
  const InferOutcome second = InferAndWait(server.get(), one);
  ASSERT_THAT(second.outputs, SizeIs(1));
  EXPECT_EQ(second.outputs[0].name, "OUTPUT1");

  const auto statistics = server->Statistics("simple", "");
  ASSERT_TRUE(statistics.ok());
  EXPECT_EQ((*statistics)[0].success.count, 2);
  EXPECT_EQ((*statistics)[0].fail.count, 0);
  EXPECT_GT((*statistics)[0].last_inference_ms, 0);
}

TEST(InferenceServer, RefusesWhatTheModelDoesNotHave) {
  const auto server = ServeSimple();
  const auto expect = [&](const std::function<void(InferRequest*)>& change,
                          atollrt::StatusCode code, const char* says) {
    InferRequest request = SimpleRequest();
    change(&request);
    const InferOutcome outcome = InferAndWait(server.get(), request);
    EXPECT_EQ(outcome.status.code(), code) << outcome.status.message();
    EXPECT_THAT(outcome.status.message(), HasSubstr(says));
  };
  using atollrt::StatusCode;
  const auto bad = StatusCode::kInvalidArgument;
  expect([](InferRequest* r) { r->model = "nope"; }, StatusCode::kNotFound, "'nope'");
  expect([](InferRequest* r) { r->version = "2"; }, StatusCode::kNotFound, "version '2'");
  expect([](InferRequest* r) { r->version = "../1"; }, StatusCode::kNotFound, "version");
  expect([](InferRequest* r) { r->inputs.pop_back(); }, bad, "'INPUT0'");
  expect([](InferRequest* r) { r->inputs[1].name = "INPUT1"; }, bad, "twice");
  expect([](InferRequest* r) { r->inputs[1].name = "x"; }, bad, "no input 'x'");
  expect([](InferRequest* r) { r->inputs[1].name = ""; }, bad, "no input ''");
  expect([](InferRequest* r) { r->inputs[1].shape = {16}; }, bad, "[1,16], not [16]");
  expect([](InferRequest* r) { r->inputs[1].shape = {-1, -16}; }, bad, "[1,16]");
  expect([](InferRequest* r) { r->inputs[1].type = DataType::kFp32; }, bad, "INT32, not FP32");
  expect([](InferRequest* r) { r->inputs[1].bytes = r->inputs[1].bytes.first(63); }, bad,
         "64 bytes, not 63");
  expect([](InferRequest* r) { r->outputs = {"OUTPUT0", "x"}; }, bad, "no output 'x'");
  expect([](InferRequest* r) { r->outputs = {"OUTPUT0", "OUTPUT0"}; }, bad, "second output");
  expect([](InferRequest* r) { r->deadline = std::chrono::steady_clock::now() - 1s; },
         StatusCode::kTimeout, "deadline");
}

TEST(InferenceServer, ConvertsRealValuesByTheTensorsScales) {
  InferenceServerOptions options;
  options.models = {{"fashion", kFashion}};
  const auto server = Serve(std::move(options));
  const auto info = *server->Info("fashion", "");
  const TensorInfo& input = info->inputs[0];
  std::vector<float> real(input.elements());
  std::vector<int8_t> stored(input.elements());
  for (size_t i = 0; i < real.size(); ++i) {
    stored[i] = static_cast<int8_t>(i % 256);
    real[i] =
        input.quantization.scale * static_cast<float>(stored[i] - input.quantization.zero_point);
  }
  InferRequest request;
  request.model = "fashion";
  request.inputs.push_back(Input("", DataType::kInt8, input.shape, stored));
  const InferOutcome as_stored = InferAndWait(server.get(), request);
  ASSERT_TRUE(as_stored.status.ok()) << as_stored.status.message();
  request.inputs = {Input("image", DataType::kFp32, input.shape, real)};
  request.real_values = true;
  const InferOutcome as_real = InferAndWait(server.get(), request);
  ASSERT_TRUE(as_real.status.ok()) << as_real.status.message();
  EXPECT_EQ(as_real.outputs[0].type, DataType::kFp32);
  const TensorInfo& output = info->outputs[0];
  for (size_t i = 0; i < output.elements(); ++i) {
    float value;
    std::memcpy(&value, as_real.outputs[0].bytes.data() + 4 * i, 4);
    const auto level = static_cast<int8_t>(as_stored.outputs[0].bytes[i]);
    EXPECT_EQ(value, output.quantization.scale *
                         static_cast<float>(level - output.quantization.zero_point));
  }
}

TEST(QuantizeTensor, RoundsHalvesAwayFromZeroAndClamps) {
  const TensorInfo info = {.name = "t",
                           .type = DataType::kInt8,
                           .shape = {7},
                           .quantization = {.scale = 2, .zero_point = -3}};
  const float real[7] = {1, -1, 5, 1e30F, -1e30F, NAN, 0};
  int8_t stored[7];
  QuantizeTensor(info, {reinterpret_cast<const uint8_t*>(real), sizeof(real)},
                 {reinterpret_cast<uint8_t*>(stored), sizeof(stored)});
  EXPECT_THAT(stored, ElementsAre(-2, -4, 0, 127, -128, -3, -3));
}

TEST(InferenceServer, LoadsTheNewestVersionOrWhatTheConfigSays) {
  const Folder folder;
  const std::string simple = ReadFile(kSimple), fashion = ReadFile(kFashion);
  folder.Put("a/1/model.tflite", simple);
  folder.Put("a/3/model.tflite", fashion);
  folder.Put("a/03/model.tflite", simple);
  folder.Put("a/x/model.tflite", simple);
  folder.Put("b/1/model.tflite", simple);
  folder.Put("b/2/model.tflite", simple);
  folder.Put("b/config.json", R"({"version_policy": {"all": {}}})");
  folder.Put("b/labels.txt", "one\r\ntwo\n");
  folder.Put("c/1/model.tflite", "no model");
  folder.Put("d/readme", "");
  InferenceServerOptions options;
  options.model_folder = folder.path();
  const auto server = Serve(std::move(options));
  EXPECT_THAT((*server->Info("a", ""))->versions, ElementsAre("3"));
  EXPECT_THAT((*server->Info("b", ""))->versions, ElementsAre("1", "2"));
  EXPECT_THAT((*server->Info("b", "1"))->labels, ElementsAre("one", "two"));
  EXPECT_FALSE(server->ready());
  std::map<std::string, ModelEntry> index;
  for (const ModelEntry& entry : server->Index()) index[entry.name + entry.version] = entry;
  EXPECT_EQ(index.size(), 5u);
  EXPECT_EQ(index["a3"].state, ModelState::kReady);
  EXPECT_EQ(index["c"].state, ModelState::kUnavailable);
  EXPECT_THAT(index["c"].reason, HasSubstr("model 'c'"));
  EXPECT_THAT(index["d"].reason, HasSubstr("no model.tflite"));
  EXPECT_EQ(server->Load("a", {}).code(), atollrt::StatusCode::kPermissionDenied);
  EXPECT_EQ(server->Unload("a").code(), atollrt::StatusCode::kPermissionDenied);
}

TEST(InferenceServer, TakesUploadsAsHostile) {
  InferenceServerOptions options;
  options.control = ModelControl::kExplicit;
  options.limits.models = 3;
  options.limits.model_bytes = 10'000'000;
  const auto server = Serve(std::move(options));
  const std::string simple = ReadFile(kSimple);
  const auto load = [&](const std::string& name, const std::string& path,
                        const std::string& bytes) {
    ModelUpload upload;
    upload.files[path] = bytes;
    return server->Load(name, std::move(upload));
  };
  EXPECT_TRUE(load("up", "7/model.tflite", simple).ok());
  EXPECT_EQ((*server->Info("up", ""))->version, "7");
  using atollrt::StatusCode;
  for (const char* const name : {"", ".", "..", "../x", "a/b", ".hidden", "a\nb", "a\\b"}) {
    EXPECT_EQ(load(name, "1/model.tflite", simple).code(), StatusCode::kInvalidArgument) << name;
  }
  for (const char* const path : {"model.tflite", "0/model.tflite", "../1/model.tflite",
                                 "1/../model.tflite", "-1/model.tflite", "1/other", "1/", ""}) {
    EXPECT_EQ(load("x", path, simple).code(), StatusCode::kInvalidArgument) << path;
  }
  EXPECT_FALSE(load("x", "1/model.tflite", "").ok());
  EXPECT_EQ(load("x", "1/model.tflite", std::string(10'000'001, 'x')).code(),
            StatusCode::kResourceExhausted);
  for (size_t size = 0; size < simple.size(); size += 13) {
    (void)load("x", "1/model.tflite", simple.substr(0, size));  // every error but no crash
  }
  // Names that were tried in vain are not kept.
  EXPECT_FALSE(server->Info("nope", "").ok());
  EXPECT_EQ(server->Load("nope", {}).code(), StatusCode::kNotFound);
  ModelUpload deep;
  deep.files["1/model.tflite"] = simple;
  deep.config = std::string(1000, '[');
  EXPECT_EQ(server->Load("deep", deep).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(load("two", "1/model.tflite", simple).ok());
  EXPECT_TRUE(load("three", "1/model.tflite", simple).ok());
  EXPECT_EQ(load("four", "1/model.tflite", simple).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(server->Unload("two").ok());
  EXPECT_EQ(server->Unload("two").code(), StatusCode::kNotFound);
  EXPECT_TRUE(load("four", "1/model.tflite", simple).ok());
  // What is there is not lost to a file that is none.
  EXPECT_FALSE(load("four", "1/model.tflite", "nonsense").ok());
  EXPECT_TRUE(server->ModelReady("four", ""));
}

TEST(InferenceServer, RemembersUnloadedModelsOfTheFolderAlone) {
  const Folder folder;
  const std::string simple = ReadFile(kSimple);
  folder.Put("mine/1/model.tflite", simple);
  InferenceServerOptions options;
  options.control = ModelControl::kExplicit;
  options.model_folder = folder.path();
  const auto server = Serve(std::move(options));
  ModelUpload upload;
  upload.files["1/model.tflite"] = simple;
  EXPECT_TRUE(server->Load("theirs", std::move(upload)).ok());
  EXPECT_TRUE(server->Unload("theirs").ok());
  EXPECT_TRUE(server->Unload("mine").ok());
  folder.Put("theirs/1/model.tflite", simple);
  std::map<std::string, std::string> reasons;
  for (const ModelEntry& entry : server->Index()) reasons[entry.name] = entry.reason;
  EXPECT_EQ(reasons["mine"], "unloaded");
  EXPECT_EQ(reasons["theirs"], "not loaded");
}

TEST(ModelFiles, AFolderThatCannotBeReadToTheEndIsAnError) {
  const Folder folder;
  for (const char* const name : {"a/1/model.tflite", "a/2/model.tflite", "b/1/model.tflite"}) {
    folder.Put(name, "x");
  }
  for (int entries = 0; entries < 4; ++entries) {  // "." and ".." among them
    const FailingFolders fail(entries);
    const auto names = ListModels(folder.path());
    ASSERT_FALSE(names.ok()) << entries;
    EXPECT_THAT(names.status().message(), HasSubstr("folder of models '" + folder.path() + "': "));
  }
  for (int entries = 0; entries < 4; ++entries) {
    const FailingFolders fail(entries);
    const auto files = FindModel(folder.path(), "a", {}, {});
    ASSERT_FALSE(files.ok()) << entries;
    EXPECT_THAT(files.status().message(), HasSubstr("model 'a': "));
  }
  EXPECT_THAT(*ListModels(folder.path()), ElementsAre("a", "b"));
  EXPECT_TRUE(FindModel(folder.path(), "a", {}, {}).ok());
}

TEST(InferenceServer, ReloadsWithoutAFailedRequest) {
  const Folder folder;
  const std::string simple = ReadFile(kSimple);
  folder.Put("simple/1/model.tflite", simple);
  InferenceServerOptions options;
  options.model_folder = folder.path();
  options.control = ModelControl::kExplicit;
  options.limits.queue = 1000;
  const auto server = Serve(std::move(options));
  std::atomic<bool> stop = false;
  std::atomic<int> done = 0, failed = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      while (!stop) {
        const InferOutcome outcome = InferAndWait(server.get(), SimpleRequest());
        ++done;
        if (!outcome.status.ok() || Integers(outcome.outputs[0].bytes)[5] != 5003) ++failed;
      }
    });
  }
  for (int i = 2; i < 40; ++i) {
    folder.Put("simple/" + std::to_string(i) + "/model.tflite", simple);
    EXPECT_TRUE(server->Load("simple", {}).ok());
    EXPECT_EQ((*server->Info("simple", ""))->version, std::to_string(i));
    const int before = done;
    while (done < before + 20) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(failed, 0);
}

// A server with a model that is busy with one request, and whose average time is known.
class BusyServer : public testing::Test {
 protected:
  void Start(InferenceLimits limits, const std::string& file = SlowModel()) {
    InferenceServerOptions options;
    options.control = ModelControl::kExplicit;
    options.threads = 1;
    options.limits = limits;
    server_ = Serve(std::move(options));
    ModelUpload upload;
    upload.files["1/model.tflite"] = file;
    const auto loaded = server_->Load("slow", std::move(upload));
    ASSERT_TRUE(loaded.ok()) << loaded.message();
  }
  // Infer, with the outcome in the future.
  std::future<InferOutcome> Ask(InferRequest request, CancelFunction* cancel = nullptr) {
    const auto promise = std::make_shared<std::promise<InferOutcome>>();
    auto function = server_->Infer(std::move(request), [promise](InferOutcome outcome) {
      promise->set_value(std::move(outcome));
    });
    if (cancel != nullptr) *cancel = function;
    return promise->get_future();
  }
  InferRequest Request() { return ZeroRequest(*server_, "slow"); }
  // A request that has the only interpreter until Release.
  std::future<InferOutcome> Hold() {
    const auto promise = std::make_shared<std::promise<InferOutcome>>();
    const auto entered = std::make_shared<std::promise<void>>();
    server_->Infer(Request(),
                   [promise, entered, held = release_.get_future().share()](InferOutcome outcome) {
                     entered->set_value();
                     held.wait();
                     promise->set_value(std::move(outcome));
                   });
    entered->get_future().wait();
    return promise->get_future();
  }
  void Release() { release_.set_value(); }

  std::promise<void> release_;
  std::unique_ptr<InferenceServer> server_;
};

TEST_F(BusyServer, RefusesWhatWouldMissItsDeadline) {
  Start({});
  auto first = Hold();  // now the average is known
  std::vector<std::future<InferOutcome>> waiting;
  for (int i = 0; i < 8; ++i) waiting.push_back(Ask(Request()));
  InferRequest urgent = Request();
  const int64_t wait_ns = (*server_->Statistics("slow", ""))[0].expected_wait_ns;
  ASSERT_GT(wait_ns, 0);
  urgent.deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(wait_ns / 4);
  const InferOutcome refused = Ask(urgent).get();
  EXPECT_EQ(refused.status.code(), atollrt::StatusCode::kResourceExhausted)
      << refused.status.message();
  ASSERT_TRUE(refused.retry_after);
  EXPECT_GT(refused.retry_after->count(), 0);
  // There is time enough, and a queue is no reason by itself.
  InferRequest patient = Request();
  patient.deadline = std::chrono::steady_clock::now() + kLong;
  waiting.push_back(Ask(patient));
  Release();
  EXPECT_TRUE(first.get().status.ok());
  for (auto& one : waiting) EXPECT_TRUE(one.get().status.ok());
  EXPECT_EQ((*server_->Statistics("slow", ""))[0].refused, 1);
}

TEST_F(BusyServer, RefusesMoreThanTheQueueHolds) {
  Start({.queue = 2});
  auto first = Hold();
  auto second = Ask(Request()), third = Ask(Request());
  const InferOutcome refused = Ask(Request()).get();
  EXPECT_EQ(refused.status.code(), atollrt::StatusCode::kResourceExhausted);
  EXPECT_TRUE(refused.retry_after);
  Release();
  EXPECT_TRUE(first.get().status.ok());
  EXPECT_TRUE(second.get().status.ok());
  EXPECT_TRUE(third.get().status.ok());
}

TEST_F(BusyServer, TakesUrgentRequestsFirst) {
  Start({});
  auto first = Hold();
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::future<void>> all;
  for (const uint32_t priority : {0u, 3u, 1u, 3u, 0u, 2u}) {
    InferRequest request = Request();
    request.priority = priority;
    const auto done = std::make_shared<std::promise<void>>();
    all.push_back(done->get_future());
    server_->Infer(std::move(request), [&, priority, done](InferOutcome outcome) {
      EXPECT_TRUE(outcome.status.ok());
      {
        const std::lock_guard lock(mutex);
        order.push_back(static_cast<int>(priority));
      }
      done->set_value();
    });
  }
  Release();
  for (auto& one : all) one.get();
  EXPECT_THAT(order, ElementsAre(1, 2, 3, 3, 0, 0));
}

TEST_F(BusyServer, EndsWhatIsCancelled) {
  Start({});
  auto first = Hold();
  CancelFunction cancel;
  auto second = Ask(Request(), &cancel);
  cancel();
  EXPECT_EQ(second.get().status.code(), atollrt::StatusCode::kCancelled);
  cancel();  // once more does no harm
  Release();
  EXPECT_TRUE(first.get().status.ok());
  EXPECT_EQ((*server_->Statistics("slow", ""))[0].cancelled, 1);
}

TEST_F(BusyServer, EndsWhatWaitsTooLong) {
  Start({.longest_wait = 100ms}, ReadFile(kSimple));
  auto first = Hold();
  auto second = Ask(Request());
  InferRequest request = Request();
  request.deadline = std::chrono::steady_clock::now() + 50ms;
  auto third = Ask(request);
  EXPECT_EQ(second.get().status.code(), atollrt::StatusCode::kResourceExhausted);
  EXPECT_EQ(third.get().status.code(), atollrt::StatusCode::kTimeout);
  Release();
  EXPECT_TRUE(first.get().status.ok());
}

TEST_F(BusyServer, FinishesRequestsOfAModelThatIsUnloaded) {
  Start({});
  auto first = Ask(Request()), second = Ask(Request());
  const InferRequest later = Request();
  EXPECT_TRUE(server_->Unload("slow").ok());
  EXPECT_EQ(Ask(later).get().status.code(), atollrt::StatusCode::kNotFound);
  EXPECT_TRUE(first.get().status.ok());
  EXPECT_TRUE(second.get().status.ok());
}

TEST_F(BusyServer, DrainsAndEnds) {
  Start({});
  auto first = Ask(Request()), second = Ask(Request());
  const InferRequest later = Request();
  EXPECT_TRUE(server_->Drain(kLong));
  EXPECT_EQ(first.wait_for(kLong), std::future_status::ready);
  EXPECT_TRUE(second.get().status.ok());
  EXPECT_EQ(Ask(later).get().status.code(), atollrt::StatusCode::kResourceExhausted);
  EXPECT_FALSE(server_->ready());
}

TEST_F(BusyServer, CancelsWhatWaitsWhenItEnds) {
  Start({});
  auto first = Hold();
  auto second = Ask(Request());
  std::thread end([&] { server_.reset(); });
  EXPECT_EQ(second.get().status.code(), atollrt::StatusCode::kCancelled);
  Release();
  end.join();
  EXPECT_EQ(first.wait_for(kLong), std::future_status::ready);
}

TEST(InferenceServer, KeepsNothingOfARequestForTheNext) {
  atollrt::ModelBuilder m;
  m.Output(m.Lstm(m.Input({1, 4, 8}), {.units = 6}));
  const std::vector<uint8_t> file = m.Build();
  InferenceServerOptions options;
  options.control = ModelControl::kExplicit;
  const auto server = Serve(std::move(options));
  ModelUpload upload;
  upload.files["1/model.tflite"] = std::string(file.begin(), file.end());
  const auto loaded = server->Load("lstm", std::move(upload));
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  const InferRequest request = ZeroRequest(*server, "lstm");
  const InferOutcome first = InferAndWait(server.get(), request);
  InferRequest other = request;
  const auto info = *server->Info("lstm", "");
  other.inputs = {Input(info->inputs[0].name, info->inputs[0].type, info->inputs[0].shape,
                        std::vector<uint8_t>(info->inputs[0].bytes(), 77))};
  const InferOutcome between = InferAndWait(server.get(), other);
  ASSERT_TRUE(first.status.ok() && between.status.ok()) << first.status.message();
  EXPECT_NE(between.outputs[0].bytes, first.outputs[0].bytes);
  EXPECT_EQ(InferAndWait(server.get(), request).outputs[0].bytes, first.outputs[0].bytes);
}

TEST(InferenceServer, RunsInstancesSideBySide) {
  InferenceServerOptions options;
  options.models = {{"simple", kSimple}};
  options.instances = 3;
  const auto server = Serve(std::move(options));
  EXPECT_EQ((*server->Info("simple", ""))->instances, 3);
  // All three are inside their callbacks at the same time.
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;
  std::vector<std::future<void>> ends;
  for (int i = 0; i < 3; ++i) {
    const auto end = std::make_shared<std::promise<void>>();
    ends.push_back(end->get_future());
    server->Infer(SimpleRequest(), [&, end](InferOutcome) {
      std::unique_lock lock(mutex);
      ++inside;
      changed.notify_all();
      EXPECT_TRUE(changed.wait_for(lock, kLong, [&] { return inside == 3; }));
      end->set_value();
    });
  }
  for (auto& end : ends) end.get();
}

TEST(InferenceServer, SaysWhatIsThereForPrometheus) {
  const auto server = ServeSimple();
  (void)InferAndWait(server.get(), SimpleRequest());
  const std::string text = PrometheusText(*server);
  EXPECT_THAT(text, HasSubstr("nv_inference_request_success{model=\"simple\",version=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("atoll_request_seconds_bucket{model=\"simple\",version=\"1\",le="
                              "\"+Inf\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("atoll_server_ready 1\n"));
}

TEST(InferenceServer, SaysWhyThereIsNoDeviceOrFolder) {
  InferenceServerOptions options;
  options.device = "nonsense";
  EXPECT_EQ(InferenceServer::Create(options).code(), atollrt::StatusCode::kInvalidArgument);
  options.device = "cpu";
  options.model_folder = "/nonexistent";
  EXPECT_EQ(InferenceServer::Create(options).code(), atollrt::StatusCode::kNotFound);
}

TEST(ParseJson, HasLimitsAndNoExceptions) {
  EXPECT_TRUE(ParseJson("{\"a\": [1, 2.5, null]}").ok());
  EXPECT_TRUE(ParseJson(std::string(100, '[') + std::string(100, ']')).ok());
  EXPECT_FALSE(ParseJson(std::string(101, '[') + std::string(101, ']')).ok());
  for (const char* const text : {"", "{", "{]", "nan", "1e999", "\"\xff\"", "{} x"}) {
    EXPECT_FALSE(ParseJson(text).ok()) << text;
  }
  EXPECT_EQ(QuoteJson("a\"\xff"), "\"a\\\"\xef\xbf\xbd\"");
}

TEST(ModelFiles, KnowsNamesAndVersions) {
  EXPECT_TRUE(IsModelName("a b.c-d_e"));
  for (const char* const name : {"", ".", "..", ".a", "a/b", "a\\b", "a\x01", "a\x7f"}) {
    EXPECT_FALSE(IsModelName(name)) << name;
  }
  EXPECT_FALSE(IsModelName(std::string(201, 'a')));
  EXPECT_EQ(ParseVersion("12"), 12);
  for (const char* const text :
       {"", "0", "01", "-1", "+1", "1.0", "a", "1 ", "9999999999999999999"}) {
    EXPECT_EQ(ParseVersion(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace atollserve

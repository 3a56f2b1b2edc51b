// SPDX-License-Identifier: Apache-2.0
//
// Frigate's side of the exchange, and everything else that a socket can bring.
#include "serve/frigate/zmq_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/file_descriptor.h"
#include "serve/frigate/zmq_endpoint.h"
#include "tests/serve/frigate/pictures.h"
#include "tests/serve/frigate/temporary_folder.h"
#include "tests/support/eventually.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kPatienceMs = 60'000;
const std::string kYesYes = R"({"model_available":true,"model_loaded":true})";
const std::string kNoNo = R"({"model_available":false,"model_loaded":false})";
const std::string kSaved = R"({"model_loaded":true,"model_saved":true})";
const std::string kNotSaved = R"({"model_loaded":false,"model_saved":false})";
const std::string kZeros(480, '\0');

// A socket of libzmq's; its context goes with it.
class ZmqClient {
 public:
  explicit ZmqClient(const std::string& endpoint, int type = ZMQ_REQ)
      : ZmqClient(endpoint, type, [](void*) {}) {}
  // `prepare` is called with the socket before it connects.
  ZmqClient(const std::string& endpoint, int type, const std::function<void(void*)>& prepare)
      : context_(zmq_ctx_new()), socket_(zmq_socket(context_, type)) {
    prepare(socket_);
    Set(ZMQ_LINGER, 0);
    Set(ZMQ_RCVTIMEO, kPatienceMs);
    Set(ZMQ_SNDTIMEO, kPatienceMs);
    EXPECT_EQ(zmq_connect(socket_, endpoint.c_str()), 0) << endpoint;
  }
  ~ZmqClient() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  void Set(int option, int value) { zmq_setsockopt(socket_, option, &value, sizeof(value)); }

  void Send(const std::vector<std::string>& parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      ASSERT_GE(zmq_send(socket_, parts[i].data(), parts[i].size(),
                         i + 1 < parts.size() ? ZMQ_SNDMORE : 0),
                0);
    }
  }
  // Empty: nothing came.
  std::vector<std::string> Receive() {
    std::vector<std::string> parts;
    int more = 1;
    while (more != 0) {
      zmq_msg_t part;
      zmq_msg_init(&part);
      if (zmq_msg_recv(&part, socket_, 0) < 0) return {};
      parts.emplace_back(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
      more = zmq_msg_more(&part);
      zmq_msg_close(&part);
    }
    return parts;
  }
  // What libzmq says of its connection, once it has said one of these events.
  int AwaitEvent(int events) {
    zmq_socket_monitor(socket_, "inproc://monitor", events);
    void* const monitor = zmq_socket(context_, ZMQ_PAIR);
    zmq_setsockopt(monitor, ZMQ_RCVTIMEO, &kPatienceMs, sizeof(kPatienceMs));
    zmq_connect(monitor, "inproc://monitor");
    uint16_t event = 0;
    char bytes[6];
    if (zmq_recv(monitor, bytes, sizeof(bytes), 0) == sizeof(bytes)) {
      std::memcpy(&event, bytes, sizeof(event));
    }
    zmq_socket_monitor(socket_, nullptr, 0);
    zmq_close(monitor);
    return event;
  }
  std::vector<std::string> Ask(const std::vector<std::string>& parts) {
    Send(parts);
    return Receive();
  }

 private:
  void* context_;
  void* socket_;
};

std::string RequestHead(const std::string& name) {
  return nlohmann::json({{"model_request", true}, {"model_name", name}}).dump();
}
std::string DataHead(const std::string& name) {
  return nlohmann::json({{"model_data", true}, {"model_name", name}}).dump();
}
const std::string kSceneHead =
    R"({"shape": [1, 128, 176, 3], "dtype": "uint8", "model_type": "ssd"})";

std::string PixelsOf(const Image& image) { return {image.pixels.begin(), image.pixels.end()}; }
std::string BytesOfRows(const DetectionRows& rows) {
  return {reinterpret_cast<const char*>(rows.data()), sizeof(rows)};
}
std::string TextOfFile(const std::string& path) {
  const std::vector<uint8_t> bytes = BytesOfFile(path);
  return {bytes.begin(), bytes.end()};
}
Image Scene(uint64_t seed) { return MadeUpPicture(kScenesWidth, kScenesHeight, seed); }

class FrigateZmq : public ::testing::Test {
 protected:
  std::string Folder() const { return folder_ / "models"; }
  ZmqServerOptions Options() {
    ZmqServerOptions options;
    options.endpoints = {"tcp://127.0.0.1:*"};
    options.folder = Folder();
    options.budget = std::chrono::milliseconds(kPatienceMs);  // machines may be busy
    options.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    return options;
  }
  // The loader waits for `mutex` when it says what it has loaded.
  static void LetLoaderWait(std::timed_mutex* mutex, ZmqServerOptions* options) {
    options->log = [mutex, log = options->log](const std::string& line) {
      if (line.find("for pictures of") != line.npos &&
          mutex->try_lock_for(std::chrono::minutes(1))) {
        mutex->unlock();
      }
      log(line);
    };
  }
  // The emulator, with what goes wrong (docs/faults.md).
  atollpp::Delegate FaultyDevice(const std::string& faults) const {
    const std::string file = folder_ / "faults";
    WriteTextFile(file, faults);
    AtollDelegateOptions device = ATOLL_DELEGATE_OPTIONS_INIT;
    device.device = "emu";
    device.faults = file.c_str();
    auto opened = atollpp::Delegate::Open(device);
    EXPECT_TRUE(static_cast<bool>(opened)) << opened.message();
    return *opened;
  }
  std::unique_ptr<ZmqServer> Start(ZmqServerOptions options) {
    auto server = ZmqServer::Start(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status().message();
    return server.ok() ? *std::move(server) : nullptr;
  }
  std::vector<std::string> Lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

  const TemporaryFolder folder_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(FrigateZmq, AModelIsSentOnceAndFramesGetItsRows) {
  auto server = Start(Options());
  ASSERT_THAT(server->endpoints(), SizeIs(1));
  const std::string endpoint = server->endpoints()[0];
  const std::string file = TextOfFile(ScenesModel());
  {
    ZmqClient client(endpoint);
    EXPECT_THAT(client.Ask({RequestHead("model.tflite")}), ElementsAre(kNoNo));
    EXPECT_THAT(client.Ask({DataHead("model.tflite"), file}), ElementsAre(kSaved));
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      EXPECT_THAT(client.Ask({kSceneHead, PixelsOf(Scene(seed))}),
                  ElementsAre(BytesOfRows(ExpectedRows(Scene(seed)))));
    }
  }
  // Another one, and the same after its time-out, need not send it.
  ZmqClient client(endpoint);
  EXPECT_THAT(client.Ask({RequestHead("model.tflite")}), ElementsAre(kYesYes));
  EXPECT_THAT(client.Ask({kSceneHead, PixelsOf(Scene(4))}),
              ElementsAre(BytesOfRows(ExpectedRows(Scene(4)))));
  EXPECT_EQ(server->counts().frames, 4u);
  EXPECT_EQ(server->counts().detected, 4u);
  EXPECT_EQ(server->counts().uploads, 1u);
}

TEST_F(FrigateZmq, ARestartKeepsModels) {
  {
    auto server = Start(Options());
    ZmqClient client(server->endpoints()[0]);
    ASSERT_THAT(client.Ask({DataHead("m"), TextOfFile(ScenesModel())}), ElementsAre(kSaved));
  }
  auto server = Start(Options());
  ZmqClient asks(server->endpoints()[0]);
  EXPECT_THAT(asks.Ask({RequestHead("m")}), ElementsAre(kYesYes));
  // A connection that was made anew without anybody noticing.
  ZmqClient goes_on(server->endpoints()[0]);
  EXPECT_THAT(goes_on.Ask({kSceneHead, PixelsOf(Scene(1))}),
              ElementsAre(BytesOfRows(ExpectedRows(Scene(1)))));
}

TEST_F(FrigateZmq, BothFormsOfAnswers) {
  ZmqServerOptions options = Options();
  options.default_model = ScenesModel();
  options.answer_form = ZmqAnswerForm::kHeadFirst;
  auto server = Start(options);
  ZmqClient client(server->endpoints()[0]);
  EXPECT_THAT(
      client.Ask({kSceneHead, PixelsOf(Scene(1))}),
      ElementsAre(R"({"dtype":"float32","shape":[20,6]})", BytesOfRows(ExpectedRows(Scene(1)))));
}

TEST_F(FrigateZmq, ADefaultModelServesThoseWhoNeverAsk) {
  ZmqServerOptions options = Options();
  options.default_model = ScenesModel();
  options.folder.clear();
  options.device = *atollpp::Delegate::Open("emu");
  auto server = Start(options);
  ZmqClient client(server->endpoints()[0]);
  const std::string rows = BytesOfRows(ExpectedRows(Scene(1)));
  EXPECT_THAT(client.Ask({kSceneHead, PixelsOf(Scene(1))}), ElementsAre(rows));
  EXPECT_THAT(client.Ask({RequestHead("scenes_int8.tflite")}), ElementsAre(kYesYes));
  EXPECT_THAT(client.Ask({kSceneHead, PixelsOf(Scene(1))}), ElementsAre(rows));
  // It has no folder for others.
  EXPECT_THAT(client.Ask({RequestHead("model.tflite")}), ElementsAre(kNoNo));
  EXPECT_THAT(client.Ask({DataHead("model.tflite"), "x"}), ElementsAre(kNotSaved));
  EXPECT_THAT(client.Ask({kSceneHead, PixelsOf(Scene(1))}), ElementsAre(rows));
}

TEST_F(FrigateZmq, AllLayoutsAndTypesOfFramesGiveTheSameRows) {
  ZmqServerOptions options = Options();
  options.default_model = ScenesModel();
  auto server = Start(options);
  ZmqClient client(server->endpoints()[0]);
  const Image image = Scene(2);
  const size_t pixels = image.pixels.size() / 3;
  std::string first(image.pixels.size(), '\0');
  std::string floats(4 * image.pixels.size(), '\0');
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    first[i % 3 * pixels + i / 3] = static_cast<char>(image.pixels[i]);
    const float value = static_cast<float>(image.pixels[i]) / 255;
    std::memcpy(floats.data() + 4 * i, &value, sizeof(value));
  }
  const std::string rows = BytesOfRows(ExpectedRows(image));
  EXPECT_THAT(client.Ask({R"({"shape": [1, 3, 128, 176], "dtype": "uint8"})", first}),
              ElementsAre(rows));
  EXPECT_THAT(client.Ask({R"({"shape": [1, 128, 176, 3], "dtype": "float32"})", floats}),
              ElementsAre(rows));
}

TEST_F(FrigateZmq, WhateverIsWrongGivesZeros) {
  ZmqServerOptions options = Options();
  options.default_model = ScenesModel();
  auto server = Start(options);
  ZmqClient client(server->endpoints()[0]);
  const std::string pixels = PixelsOf(Scene(1));
  const std::vector<std::vector<std::string>> wrong = {
      {""},
      {"{"},
      {"", pixels},
      {kSceneHead},
      {pixels},
      {kSceneHead, ""},
      {kSceneHead, pixels.substr(1)},
      {kSceneHead, pixels + "x"},
      {kSceneHead, pixels, pixels},
      {kSceneHead, "", "", "", "", "", "", "", "", ""},
      {R"({"shape": [1, 300, 300, 3], "dtype": "uint8"})", std::string(270'000, 'x')},
      {R"({"shape": [1, 128, 176, 3], "dtype": "float32"})", std::string(4 * 67584, '\xff')},
      {R"({"shape": [1, 65535, 65535, 3], "dtype": "float32"})", pixels},
      {std::string(100'000, '['), pixels},
  };
  for (const std::vector<std::string>& message : wrong) {
    EXPECT_THAT(client.Ask(message), ElementsAre(kZeros)) << message[0].substr(0, 100);
  }
  EXPECT_THAT(client.Ask({RequestHead("../x")}), ElementsAre(kNoNo));
  EXPECT_THAT(client.Ask({RequestHead("x"), "more"}), ElementsAre(kNoNo));
  EXPECT_THAT(client.Ask({DataHead("../x"), "bytes"}), ElementsAre(kNotSaved));
  EXPECT_THAT(client.Ask({DataHead("x")}), ElementsAre(kNotSaved));
  EXPECT_THAT(client.Ask({DataHead("x"), "a", "b"}), ElementsAre(kNotSaved));
  // Nothing of that has done any harm.
  EXPECT_THAT(client.Ask({kSceneHead, pixels}), ElementsAre(BytesOfRows(ExpectedRows(Scene(1)))));
  const ZmqServerCounts counts = server->counts();
  EXPECT_EQ(counts.frames, wrong.size() + 1);
  EXPECT_EQ(counts.failed, wrong.size());
  EXPECT_EQ(counts.refused, 3u);
  // Once for each kind of thing.
  EXPECT_THAT(Lines(), SizeIs(::testing::Le(3u)));
}

TEST_F(FrigateZmq, ModelsThatCannotBeUsedAreNotKept) {
  ZmqServerOptions options = Options();
  options.limits.bytes_per_model = size_t{3} << 20;
  auto server = Start(options);
  ZmqClient client(server->endpoints()[0]);
  std::string damaged = TextOfFile(ScenesModel());
  damaged.resize(damaged.size() / 2);
  const std::string classifier =
      TextOfFile(std::string(ATOLL_SOURCE_DIR) + "/models/fashion/fashion_int8.tflite");
  for (const std::string& file : {std::string(), std::string("no model"), damaged, classifier,
                                  std::string(options.limits.bytes_per_model + 1, 'x')}) {
    EXPECT_THAT(client.Ask({DataHead("model"), file}), ElementsAre(kNotSaved)) << file.size();
    EXPECT_THAT(client.Ask({RequestHead("model")}), ElementsAre(kNoNo));
    EXPECT_THAT(client.Ask({kSceneHead, PixelsOf(Scene(1))}), ElementsAre(kZeros));
  }
  EXPECT_EQ(server->counts().refused, 5u);
  // The index alone.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(Folder()),
                          std::filesystem::directory_iterator()),
            1);
}

TEST_F(FrigateZmq, EachClientHasTheModelThatItAskedFor) {
  ZmqServerOptions options = Options();
  options.endpoints = {"tcp://127.0.0.1:*", "ipc://" + folder_ / "detector"};
  auto server = Start(options);
  EXPECT_EQ(server->endpoints()[1], "ipc://" + folder_ / "detector");
  struct stat information = {};
  ASSERT_EQ(stat((folder_ / "detector").c_str(), &information), 0);
  EXPECT_EQ(information.st_mode & 0777, 0660u);

  ZmqClient scenes(server->endpoints()[0]);
  ZmqClient other(server->endpoints()[1]);
  ASSERT_THAT(scenes.Ask({DataHead("scenes"), TextOfFile(ScenesModel())}), ElementsAre(kSaved));
  ASSERT_THAT(other.Ask({DataHead("crops"), TextOfFile(ScenesModel())}), ElementsAre(kSaved));
  const std::string rows = BytesOfRows(ExpectedRows(Scene(1)));
  EXPECT_THAT(scenes.Ask({kSceneHead, PixelsOf(Scene(1))}), ElementsAre(rows));
  EXPECT_THAT(other.Ask({kSceneHead, PixelsOf(Scene(1))}), ElementsAre(rows));
  // One that has asked for neither has no answer, so that its time-out makes it ask.
  ZmqClient silent(server->endpoints()[0]);
  silent.Send({kSceneHead, PixelsOf(Scene(1))});
  ASSERT_TRUE(Eventually([&] { return server->counts().unanswered > 0; }));
  ZmqClient again(server->endpoints()[0]);
  EXPECT_THAT(again.Ask({RequestHead("crops")}), ElementsAre(kYesYes));
  EXPECT_THAT(again.Ask({kSceneHead, PixelsOf(Scene(1))}), ElementsAre(rows));
}

TEST_F(FrigateZmq, AFrameThatTakesTooLongGetsZeros) {
  // The answer to one of the first inferences is late; what is behind it waits for a place.
  const std::string faults = "out 3 delay 800ms\n";
  ZmqServerOptions options = Options();
  options.default_model = ScenesModel();
  options.places = 1;
  options.budget = std::chrono::milliseconds(100);
  options.device = FaultyDevice(faults);
  auto server = Start(options);
  ZmqClient client(server->endpoints()[0]);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(client.Ask({kSceneHead, PixelsOf(Scene(1))}), ElementsAre(kZeros));
  EXPECT_GE(std::chrono::steady_clock::now() - start, options.budget);
  EXPECT_EQ(server->counts().late, 1u);
  // It is answered before it is told of.
  EXPECT_TRUE(Eventually([&] { return !Lines().empty(); }));
  EXPECT_THAT(Lines(), ElementsAre(HasSubstr("100 ms")));
  // Its late result is nobody's; the next ones have theirs.
  const std::string rows = BytesOfRows(ExpectedRows(Scene(2)));
  std::vector<std::string> answer;
  do {
    answer = client.Ask({kSceneHead, PixelsOf(Scene(2))});
    ASSERT_THAT(answer, SizeIs(1));
    ASSERT_THAT(answer[0], ::testing::AnyOf(kZeros, rows));
  } while (answer[0] != rows);
}

TEST_F(FrigateZmq, FramesThatNobodyLooksAtAreNotKeptWithoutALimit) {
  const std::string faults = "out 3 delay 400ms\nout 4 delay 400ms\nout 5 delay 400ms\n";
  ZmqServerOptions options = Options();
  options.default_model = ScenesModel();
  options.places = 1;
  options.frames = 2;
  options.budget = std::chrono::milliseconds(10);
  options.device = FaultyDevice(faults);
  auto server = Start(options);
  ZmqClient client(server->endpoints()[0]);
  // One at a time, each of which has its zeros after 10 ms: those before it wait nevertheless.
  for (int i = 0; i < 1000 && server->counts().failed == 0; ++i) {
    EXPECT_THAT(client.Ask({kSceneHead, PixelsOf(Scene(1))}), SizeIs(1));
  }
  EXPECT_EQ(server->counts().failed, 1u);
  EXPECT_THAT(Lines(), ::testing::Contains(HasSubstr("2 frames wait already")));
  // When the device goes on, so does the server.
  EXPECT_TRUE(Eventually([&] {
    (void)client.Ask({kSceneHead, PixelsOf(Scene(1))});
    return server->counts().failed + server->counts().late + server->counts().detected > 3;
  }));
}

TEST_F(FrigateZmq, ModelsThatTakeTooLongAreNotKeptWithoutALimit) {
  ZmqServerOptions options = Options();
  options.loading_time = std::chrono::milliseconds(100);
  std::timed_mutex loader;
  LetLoaderWait(&loader, &options);
  auto server = Start(options);
  ZmqClient client(server->endpoints()[0]);
  const std::string file = TextOfFile(ScenesModel());
  {
    const std::lock_guard waits(loader);
    for (int i = 0; i < 4; ++i) {
      EXPECT_THAT(client.Ask({DataHead("m"), file}), ElementsAre(kNotSaved));
    }
    EXPECT_EQ(server->counts().refused, 0u);
    EXPECT_THAT(client.Ask({DataHead("m"), file}), ElementsAre(kNotSaved));
    EXPECT_EQ(server->counts().refused, 1u);
    EXPECT_THAT(Lines(), ElementsAre(HasSubstr("4 models are being loaded already")));
  }
  // Those four are loaded nevertheless, and then there is room again.
  ASSERT_TRUE(Eventually([&] { return server->counts().uploads == 4; }));
  EXPECT_TRUE(Eventually(
      [&] { return client.Ask({RequestHead("m")}) == std::vector<std::string>{kYesYes}; }));
}

// Frigate's detectors give up after 200 ms, connect again and ask again.
TEST_F(FrigateZmq, WhoeverAsksForAModelWaitsForTheSameLoading) {
  const std::string file = TextOfFile(ScenesModel());
  {
    auto server = Start(Options());
    ZmqClient client(server->endpoints()[0]);
    ASSERT_THAT(client.Ask({DataHead("m"), file}), ElementsAre(kSaved));
  }
  lines_.clear();
  ZmqServerOptions options = Options();
  std::timed_mutex loader;
  LetLoaderWait(&loader, &options);
  std::unique_ptr<ZmqServer> server;
  std::deque<ZmqClient> clients;
  {
    const std::lock_guard waits(loader);
    server = Start(options);
    for (int i = 0; i < 12; ++i) {
      clients.emplace_back(server->endpoints()[0]).Send({RequestHead("m")});
    }
    // Names that nobody has are looked for, four at a time.
    for (const char* const name : {"a", "b", "c", "d", "e"}) {
      clients.emplace_back(server->endpoints()[0]).Send({RequestHead(name)});
    }
    EXPECT_TRUE(Eventually([&] { return !Lines().empty(); }));
    EXPECT_THAT(Lines(), ElementsAre(HasSubstr("4 models are being loaded already")));
  }
  for (size_t i = 0; i < clients.size(); ++i) {
    EXPECT_THAT(clients[i].Receive(), ElementsAre(i < 12 ? kYesYes : kNoNo)) << i;
  }
}

TEST_F(FrigateZmq, ClientsThatAreNone) {
  ZmqServerOptions options = Options();
  options.default_model = ScenesModel();
  auto server = Start(options);
  const std::string endpoint = server->endpoints()[0];
  ZmqClient dealer(endpoint, ZMQ_DEALER);
  // Without an envelope there is nobody to answer.
  dealer.Send({"x"});
  dealer.Send({kSceneHead, PixelsOf(Scene(1))});
  ASSERT_TRUE(Eventually([&] { return server->counts().dropped == 2; }));
  // With one, but without waiting: each has its answer, and no more is computed at a time than one.
  constexpr int kFrames = 50;
  for (int i = 0; i < kFrames; ++i) dealer.Send({"", kSceneHead, PixelsOf(Scene(1))});
  const std::string rows = BytesOfRows(ExpectedRows(Scene(1)));
  for (int i = 0; i < kFrames; ++i) {
    EXPECT_THAT(dealer.Receive(), ElementsAre("", ::testing::AnyOf(rows, kZeros)));
  }
  // Those that go in the middle of an exchange.
  for (int i = 0; i < 20; ++i) {
    ZmqClient gone(endpoint);
    gone.Send({kSceneHead, PixelsOf(Scene(1))});
  }
  // What is no ZMTP.
  const FileDescriptor raw(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const ZmqClient unrelated(endpoint, ZMQ_SUB);
  ZmqClient client(endpoint);
  EXPECT_THAT(client.Ask({kSceneHead, PixelsOf(Scene(1))}), ElementsAre(rows));
}

TEST_F(FrigateZmq, ManyClientsAtOnce) {
  ZmqServerOptions options = Options();
  options.default_model = ScenesModel();
  auto server = Start(options);
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      ZmqClient client(server->endpoints()[0]);
      const std::string rows = BytesOfRows(ExpectedRows(Scene(i)));
      for (int round = 0; round < 20; ++round) {
        ASSERT_THAT(client.Ask({kSceneHead, PixelsOf(Scene(i))}), ElementsAre(rows));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(server->counts().detected, 120u);
}

TEST_F(FrigateZmq, ListensWhereItMay) {
  const auto start = [&](const std::string& endpoint, ZmqExposure exposure) {
    ZmqServerOptions options = Options();
    options.endpoints = {endpoint};
    options.exposure = exposure;
    return ZmqServer::Start(options).status();
  };
  for (const char* endpoint :
       {"tcp://0.0.0.0:*", "tcp://*:*", "tcp://[::]:*", "tcp://eth0:*", "tcp://192.0.2.1:*"}) {
    const Status status = start(endpoint, ZmqExposure::kLocalOnly);
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << endpoint;
    EXPECT_THAT(status.message(), HasSubstr("--insecure")) << endpoint;
  }
  EXPECT_TRUE(start("tcp://0.0.0.0:*", ZmqExposure::kAnyAddress).ok());
  EXPECT_TRUE(start("tcp://localhost:*", ZmqExposure::kLocalOnly).ok());
  for (const char* endpoint : {"", "x", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:99999",
                               "tcp://127.0.0.1:x", "tcp://:5555", "ipc://", "udp://127.0.0.1:1",
                               "inproc://x", "tcp://127.0.0.1;0.0.0.0:5555"}) {
    EXPECT_EQ(start(endpoint, ZmqExposure::kAnyAddress).code(), StatusCode::kInvalidArgument)
        << endpoint;
  }
}

// A pair of keys as Z85 writes them.
struct KeyPair {
  KeyPair() { EXPECT_EQ(zmq_curve_keypair(open, secret), 0); }
  char open[41] = {}, secret[41] = {};
};

TEST_F(FrigateZmq, LetsClientsWithKeysInAlone) {
  const KeyPair ours, known, cert, unknown;
  WriteTextFile(folder_ / "server", std::string(ours.secret) + "\n");
  // Alone, and as pyzmq's and CZMQ's certificates are.
  WriteTextFile(folder_ / "clients", "# those of the house\n" + std::string(known.open) +
                                         "\r\n\ncurve\n    public-key = \"" +
                                         std::string(cert.open) + "\"\n");
  ZmqServerOptions options = Options();
  options.endpoints = {"tcp://0.0.0.0:*"};
  const auto keys = ReadCurveKeys(folder_ / "server", folder_ / "clients");
  ASSERT_TRUE(keys.ok()) << keys.status().message();
  EXPECT_EQ(keys->clients.size(), 2u);
  options.keys = *keys;
  const auto server = Start(options);
  const std::string& bound = server->endpoints()[0];
  const std::string endpoint = "tcp://127.0.0.1" + bound.substr(bound.rfind(':'));
  const auto client = [&](const KeyPair& pair, const char* server_key) {
    return std::make_unique<ZmqClient>(endpoint, ZMQ_REQ, [&](void* socket) {
      zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server_key, 40);
      zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, pair.open, 40);
      zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, pair.secret, 40);
    });
  };
  for (const KeyPair* pair : {&known, &cert}) {
    EXPECT_THAT(client(*pair, ours.open)->Ask({RequestHead("m.tflite")}), ElementsAre(kNoNo));
  }
  constexpr int kFailed = ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                          ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_DISCONNECTED;
  constexpr int kAny = kFailed | ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
  EXPECT_NE(client(unknown, ours.open)->AwaitEvent(kAny) & kFailed, 0) << "a key nobody knows";
  EXPECT_NE(client(known, unknown.open)->AwaitEvent(kAny) & kFailed, 0) << "another server's key";
  EXPECT_NE(ZmqClient(endpoint).AwaitEvent(kAny) & kFailed, 0) << "no key at all";
  EXPECT_THAT(client(known, ours.open)->Ask({RequestHead("m.tflite")}), ElementsAre(kNoNo));
}

TEST_F(FrigateZmq, SaysWhatIsWrongWithKeys) {
  const KeyPair one, two;
  const auto code = [&](const std::string& server, const std::string& clients) {
    WriteTextFile(folder_ / "server", server);
    WriteTextFile(folder_ / "clients", clients);
    return ReadCurveKeys(folder_ / "server", folder_ / "clients").code();
  };
  const std::string secret = one.secret, open = two.open;
  EXPECT_EQ(code(secret, open), StatusCode::kOk);
  EXPECT_EQ(code("", open), StatusCode::kInvalidArgument) << "no key";
  EXPECT_EQ(code(secret + "\n" + secret, open), StatusCode::kInvalidArgument) << "two of them";
  EXPECT_EQ(code(secret, "# nobody\n"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(secret, open.substr(1)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(secret, open + "x"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(secret, std::string(40, '~')), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(secret, "public-key = \"short\""), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("public-key = \"" + open + "\"", open), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadCurveKeys("/absent", folder_ / "clients").code(), StatusCode::kNotFound);
}

TEST_F(FrigateZmq, TakesNobodysPlace) {
  auto server = Start(Options());
  ZmqServerOptions options = Options();
  options.folder = folder_ / "others";
  options.endpoints = server->endpoints();
  EXPECT_EQ(ZmqServer::Start(options).code(), StatusCode::kDeviceBusy);
  // libzmq would remove what is at the path.
  WriteTextFile(folder_ / "file", "mine");
  options.endpoints = {"ipc://" + folder_ / "file"};
  EXPECT_EQ(ZmqServer::Start(options).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(TextOfFile(folder_ / "file"), "mine");
  options.endpoints = {"ipc://" + folder_ / "socket"};
  auto first = Start(options);
  options.folder = folder_ / "more";
  EXPECT_EQ(ZmqServer::Start(options).code(), StatusCode::kDeviceBusy);
  first.reset();
  auto second = Start(options);
  EXPECT_NE(second, nullptr);
  options.folder.clear();
  EXPECT_EQ(ZmqServer::Start(options).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atollrt

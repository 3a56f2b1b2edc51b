// SPDX-License-Identifier: Apache-2.0
//
// A worker whose threads all have something to do at once, and whoever asks it: what
// ThreadSanitizer sees of a fleet. What others see of workers is in fleet_test.py.
#include "serve/fleet/fleet_worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <optional>
#include <thread>

#include "serve/fleet/fleet_view.h"
#include "serve/fleet/frame_client.h"
#include "serve/fleet/infer_call.h"
#include "serve/fleet/metrics.h"
#include "serve/fleet/objects.h"
#include "serve/fleet/producer.h"
#include "serve/fleet/subjects.h"
#include "serve/fleet/sweeper.h"
#include "tests/serve/fleet/nats_server.h"
#include "tests/support/absent.h"
#include "tests/support/eventually.h"

namespace atollserve {
namespace {

using namespace std::chrono_literals;
using atollrt::Eventually;

const std::string kFashion = std::string(ATOLL_SOURCE_DIR) + "/models/fashion/fashion_int8.tflite";
constexpr size_t kInputBytes = 784;
constexpr int kInputs = 8;
constexpr auto kLong = 120s;
// Jobs that went under with a server come again soon.
const StreamOptions kStreams = {.ack_wait_ms = 2000};

std::string Input(int number) {
  std::string bytes(kInputBytes, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i * 31 + static_cast<size_t>(number) * 97);
  }
  return bytes;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What the CPU gives for each input.
std::vector<std::string> Expected() {
  InferenceServerOptions options;
  options.device = "cpu";
  options.models = {{"fashion", kFashion}};
  const auto server = InferenceServer::Create(std::move(options));
  EXPECT_TRUE(server.ok()) << server.status().message();
  std::vector<std::string> expected;
  for (int i = 0; i < kInputs; ++i) {
    const auto bytes = std::make_shared<const std::string>(Input(i));
    InferRequest request;
    request.model = "fashion";
    request.inputs.push_back(
        {.name = "",
         .type = DataType::kInt8,
         .shape = {1, 28, 28, 1},
         .bytes = {reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()},
         .owner = bytes});
    std::promise<std::string> answer;
    (*server)->Infer(std::move(request), [&](const InferOutcome& outcome) {
      EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
      std::string given;
      for (const OutputTensor& output : outcome.outputs) {
        given.append(reinterpret_cast<const char*>(output.bytes.data()), output.bytes.size());
      }
      answer.set_value(given);
    });
    expected.push_back(answer.get_future().get());
  }
  return expected;
}

// Of an answer's body.
std::string OutputBytes(const std::string& body, const std::string& json_bytes) {
  const auto outputs = ParseAnswer(body, json_bytes);
  if (!outputs.ok()) return outputs.status().message();
  std::string given;
  for (const OutputTensor& output : *outputs) {
    given.append(reinterpret_cast<const char*>(output.bytes.data()), output.bytes.size());
  }
  return given;
}

std::unique_ptr<FleetConnection> ConnectTo(const NatsServer& server) {
  ConnectionOptions options;
  options.servers = {server.url()};
  options.name = "fleet_worker_test";
  options.connect_timeout_ms = std::chrono::milliseconds(kLong).count();
  auto made = FleetConnection::Connect(std::move(options), [](const std::string&) {});
  EXPECT_TRUE(made.ok()) << made.status().message() << server.Log();
  return *std::move(made);
}

std::unique_ptr<FleetWorker> StartWorker(const FleetConnection* connection, const char* id) {
  FleetWorkerOptions options;
  options.id = id;
  options.device = "emu";
  options.threads = 1;
  options.streams = kStreams;
  options.models = {{"fashion", kFashion}};
  auto made = FleetWorker::Start(connection, std::move(options));
  EXPECT_TRUE(made.ok()) << made.status().message();
  return *std::move(made);
}

bool Has(const FleetWorker& worker, const std::string& model, const std::string& version) {
  for (const WorkerModel& one : worker.Record().models) {
    if (one.name == model && one.version == version) return true;
  }
  return false;
}

class FleetWorkerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string_view(NatsServer::kProgram).empty()) {
      atollrt::ReportAbsent("nats-server is not installed");
      GTEST_SKIP();
    }
    server_.emplace();
    expected_ = Expected();
    connection_ = ConnectTo(*server_);
    streams_.emplace(connection_.get(), kStreams);
    const auto status = streams_->EnsureWithin(std::chrono::milliseconds(kLong).count());
    ASSERT_TRUE(status.ok()) << status.message();
  }

  // So many frames; returns how many were answered.
  int AskFrames(FrameClient* client, int count) const {
    int answered = 0;
    for (int i = 0; i < count; ++i) {
      const std::string body = Input(i % kInputs);
      const FrameAnswer answer = client->Infer({.model = "fashion",
                                                .headers = {{kLengthHeader, "0"}},
                                                .body = body,
                                                .budget = kLong,
                                                .number = std::to_string(i)});
      if (answer.end != FrameEnd::kAnswered) continue;
      ++answered;
      EXPECT_EQ(OutputBytes(answer.body, answer.json_bytes), expected_[i % kInputs]);
    }
    return answered;
  }

  // So many jobs, each of which has one result.
  void DoJobs(const FleetConnection* connection, int count) const {
    auto spool = Spool::Open(server_->folder() + "/spool");
    ASSERT_TRUE(spool.ok()) << spool.status().message();
    const FleetStreams streams(connection, kStreams);
    ProducerOptions options;
    options.model = "fashion";
    options.publish_again_ms = 2000;
    Producer producer(connection, &streams, spool->get(), options);
    int added = 0;
    std::map<std::string, int> results;
    const auto status = producer.Run(
        [&]() -> std::optional<atollrt::Result<JobInput>> {
          if (added == count) return std::nullopt;
          const int number = added++;
          return JobInput{.name = std::to_string(number),
                          .headers = {{kLengthHeader, "0"}},
                          .body = Input(number % kInputs)};
        },
        [&](const JobResult& result) -> atollrt::Status {
          EXPECT_EQ(result.error, "");
          ++results[result.job.name];
          EXPECT_EQ(OutputBytes(result.body, result.json_bytes),
                    expected_[std::stoi(result.job.name) % kInputs]);
          return {};
        },
        [] { return atollrt::Status(); });
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(results.size(), static_cast<size_t>(count));
    for (const auto& [name, times] : results) EXPECT_EQ(times, 1) << name;
  }

  void Put(const std::string& model, int64_t version) const {
    const ObjectStore store(connection_.get(), kModelBucket);
    bool is_new = false;
    const auto status = store.Put(ModelObjectName(model, version), ReadFile(kFashion), "", &is_new);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void Place(const std::vector<PlacedModel>& models) const {
    const auto bucket = streams_->OpenBucket(kPlacementBucket);
    ASSERT_TRUE(bucket.ok()) << bucket.status().message();
    EXPECT_EQ(
        kvStore_PutString(nullptr, bucket->get(), kDefaultPlacement, PlacementJson(models).c_str()),
        NATS_OK);
  }

  std::optional<NatsServer> server_;
  std::vector<std::string> expected_;
  std::unique_ptr<FleetConnection> connection_;
  std::optional<FleetStreams> streams_;
};

TEST_F(FleetWorkerTest, DoesEverythingAtOnce) {
  const auto own = ConnectTo(*server_), other = ConnectTo(*server_);
  const auto worker = StartWorker(own.get(), "w1"), second = StartWorker(other.get(), "w2");
  std::atomic<bool> ends = false;
  std::vector<std::thread> threads;
  const auto client = FrameClient::Create(connection_.get());
  ASSERT_TRUE(client.ok()) << client.status().message();
  std::atomic<int> answered = 0;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] { answered += AskFrames(client->get(), 40); });
  }
  threads.emplace_back([&] {
    const auto producer = ConnectTo(*server_);
    DoJobs(producer.get(), 60);
  });
  // Who looks.
  std::thread looks([&] {
    FleetView view;
    Sweeper sweeper(connection_.get(), &*streams_);
    while (!ends) {
      const WorkerRecord record = worker->Record();
      view.Look({record, second->Record()}, {});
      EXPECT_FALSE(WorkerPrometheusText(record, own->connected()).empty());
      EXPECT_FALSE(StatusTable(view.workers(), view.waiting()).empty());
      SweepCounts counts;
      (void)sweeper.Sweep(&counts);
      std::this_thread::sleep_for(20ms);
    }
  });
  // Models come, are replaced and go.
  Put("other", 1);
  Place({{.name = "other"}});
  EXPECT_TRUE(Eventually([&] { return Has(*worker, "other", "1"); }));
  Put("other", 2);
  EXPECT_TRUE(Eventually([&] { return Has(*worker, "other", "2") && Has(*second, "other", "2"); }));
  Place({});
  EXPECT_TRUE(Eventually([&] { return !Has(*worker, "other", "2"); }));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, 120);
  ends = true;
  looks.join();
  EXPECT_EQ(worker->Record().frames.answered + second->Record().frames.answered, 120);
}

// One worker goes while it is asked: the other one has the rest.
TEST_F(FleetWorkerTest, DrainsWhileItIsAsked) {
  const auto own = ConnectTo(*server_), other = ConnectTo(*server_);
  auto first = StartWorker(own.get(), "w1");
  const auto second = StartWorker(other.get(), "w2");
  const auto client = FrameClient::Create(connection_.get());
  ASSERT_TRUE(client.ok()) << client.status().message();
  ASSERT_TRUE(Eventually([&] { return (*client)->Workers("fashion").size() == 2; }));
  std::atomic<int> answered = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] { answered += AskFrames(client->get(), 30); });
  }
  threads.emplace_back([&] { DoJobs(connection_.get(), 30); });
  std::promise<void> asked;
  first->OnDrainRequested([&] { asked.set_value(); });
  ASSERT_TRUE(Eventually([&] { return first->Record().frames.answered > 0; }));
  EXPECT_TRUE(connection_->Request(DrainSubject("w1"), {}, "", 60'000).ok());
  asked.get_future().wait();
  EXPECT_TRUE(first->drain_requested());
  first->Drain();
  first.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, 60);
}

// The server dies twice while it is used: no job is lost or done twice, and frames are answered
// again.
TEST_F(FleetWorkerTest, OutlivesTheServer) {
  const auto own = ConnectTo(*server_);
  const auto worker = StartWorker(own.get(), "w1");
  const auto client = FrameClient::Create(connection_.get());
  ASSERT_TRUE(client.ok()) << client.status().message();
  std::atomic<bool> ends = false;
  std::thread jobs([&] {
    const auto producer = ConnectTo(*server_);
    DoJobs(producer.get(), 60);
  });
  std::thread frames([&] {
    while (!ends) (void)AskFrames(client->get(), 1);
  });
  for (int i = 0; i < 2; ++i) {
    const int64_t before = worker->Record().frames.answered;
    EXPECT_TRUE(Eventually([&] { return worker->Record().frames.answered > before; }));
    server_->Kill();
    server_->Start();
  }
  jobs.join();
  ends = true;
  frames.join();
  EXPECT_TRUE(Eventually([&] { return AskFrames(client->get(), 1) == 1; }));
}

}  // namespace
}  // namespace atollserve

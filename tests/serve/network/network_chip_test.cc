// SPDX-License-Identifier: Apache-2.0
//
// The device of another computer, whose server is one in this process that says what a test wants.
#include "serve/network/network_chip.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "driver/device/device.h"
#include "inference.grpc.pb.h"
#include "runtime/base/sha256.h"
#include "runtime/graph/compiled_op.h"
#include "runtime/tflite/tflite_loader.h"
#include "serve/inference/inference_server.h"
#include "serve/network/executable_model.h"
#include "tests/support/test_executables.h"

namespace atollserve {
namespace {

using atollrt::Clock;
using atollrt::Device;
using atollrt::Executable;
using atollrt::ExecutableId;
using atollrt::Request;
using atollrt::RequestId;
using atollrt::RequestReport;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint8_t kOffset = 7;
constexpr uint32_t kCount = 8;
constexpr std::chrono::minutes kLong{1};

std::map<std::string, std::string> GoodProperties() {
  return {{"name", "emu"},
          {"description", "a made-up one"},
          {"family", "Atoll-1"},
          {"array_rows", "64"},
          {"array_columns", "64"},
          {"isa_version", "1"},
          {"memory_bytes", "8388608"},
          {"program_memory_bytes", "1048576"},
          {"clock_hz", "500000000"},
          {"link_bytes_per_second", "455000000"},
          {"request_timeout_min_ms", "0"},
          {"host_ns", "300000"},
          {"emulated", "1"}};
}

// Computes the table that Prepared executables are, unless it is told otherwise.
class Host final : public inference::GRPCInferenceService::Service {
 public:
  Host() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Host() override { Kill(); }
  void Kill() {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    server_ = nullptr;
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  std::unique_ptr<Device> Open(
      atollrt::OnDeviceLoss on_loss = atollrt::OnDeviceLoss::kReplay) const {
    auto chip = NetworkChip::Open(address(), {.name = "grpc://" + address()}, Clock::now() + kLong);
    EXPECT_TRUE(chip.ok()) << chip.status().message();
    if (!chip.ok()) return nullptr;
    atollrt::ChipKeeper::Options options;
    options.on_loss = on_loss;
    options.reopen = [where = address()](Deadline deadline) {
      return NetworkChip::Open(where, {.name = "grpc://" + where},
                               std::max(deadline, Clock::now() + std::chrono::seconds(1)));
    };
    return std::make_unique<Device>(*std::move(chip), std::move(options));
  }

  // What tests set, before clients come, or while none asks.
  std::map<std::string, std::string> properties = GoodProperties();
  grpc::Status metadata_status, load_status;
  // Of an inference, by its number from 1 on; nullptr: the right answer.
  std::function<grpc::Status(int number, grpc::ServerContext* context,
                             inference::ModelInferResponse* response)>
      infer;

  int inferences() const { return inferences_; }
  int loads() const { return loads_; }
  void Forget() {
    const std::lock_guard lock(mutex_);
    there_.clear();
  }

 private:
  grpc::Status ModelMetadata(grpc::ServerContext*, const inference::ModelMetadataRequest* request,
                             inference::ModelMetadataResponse* response) override {
    EXPECT_EQ(request->name(), kDeviceModel);
    for (const auto& [name, value] : properties) (*response->mutable_properties())[name] = value;
    return metadata_status;
  }
  grpc::Status ModelReady(grpc::ServerContext*, const inference::ModelReadyRequest* request,
                          inference::ModelReadyResponse* response) override {
    const std::lock_guard lock(mutex_);
    response->set_ready(there_.contains(request->name()));
    return grpc::Status::OK;
  }
  grpc::Status RepositoryModelLoad(grpc::ServerContext*,
                                   const inference::RepositoryModelLoadRequest* request,
                                   inference::RepositoryModelLoadResponse*) override {
    const std::string& file = request->parameters().at("file:1/model.tflite").bytes_param();
    EXPECT_EQ(request->model_name(),
              std::string(kExecutablePrefix) + atollrt::Sha256Hex(file.data(), file.size()));
    ++loads_;
    if (!load_status.ok()) return load_status;
    const std::lock_guard lock(mutex_);
    there_.insert(request->model_name());
    return grpc::Status::OK;
  }
  grpc::Status ModelInfer(grpc::ServerContext* context, const inference::ModelInferRequest* request,
                          inference::ModelInferResponse* response) override {
    const int number = ++inferences_;
    {
      const std::lock_guard lock(mutex_);
      if (!there_.contains(request->model_name())) {
        return {grpc::StatusCode::NOT_FOUND, "there is no such model"};
      }
    }
    EXPECT_EQ(request->raw_input_contents_size(), 1);
    std::string output = request->raw_input_contents(0);
    for (char& c : output) c = static_cast<char>(c + kOffset);
    response->add_raw_output_contents(output);
    (*response->mutable_parameters())["atoll_device_cycles"].set_int64_param(1234);
    return infer ? infer(number, context, response) : grpc::Status::OK;
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::atomic<int> inferences_ = 0, loads_ = 0;
  std::mutex mutex_;
  std::set<std::string> there_;
};

std::shared_ptr<const Executable> Table(uint8_t offset = kOffset) {
  return std::make_shared<const Executable>(
      atollrt::MakeTableExecutable({.count = kCount, .offset = offset}));
}

Status RunTable(Device* device, ExecutableId id, uint8_t first, RequestReport* report = nullptr,
                std::chrono::milliseconds timeout = kLong) {
  std::vector<uint8_t> input(kCount), output(kCount);
  for (size_t i = 0; i < kCount; ++i) input[i] = static_cast<uint8_t>(first + i);
  Request request;
  request.executable = id;
  request.inputs = {input};
  request.outputs = {output};
  request.timeout = timeout;
  ATOLL_ASSIGN_OR_RETURN(const RequestId submitted, device->Submit(request));
  RequestReport unused;
  ATOLL_RETURN_IF_ERROR(device->Wait(submitted, report != nullptr ? report : &unused));
  for (size_t i = 0; i < kCount; ++i) {
    if (output[i] != static_cast<uint8_t>(input[i] + kOffset)) {
      return atollrt::InternalError("byte %zu is %u", i, output[i]);
    }
  }
  return {};
}

TEST(ExecutableModel, IsOneCompiledOperator) {
  const auto executable = Table();
  const auto model = MakeExecutableModel(*executable);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->name, std::string(kExecutablePrefix) +
                             atollrt::Sha256Hex(model->file.data(), model->file.size()));
  ASSERT_EQ(model->inputs.size(), 1u);
  EXPECT_EQ(model->inputs[0].datatype, "INT8");
  EXPECT_EQ(model->inputs[0].shape, (std::vector<int64_t>{1, kCount}));
  const auto loaded = atollrt::LoadTflite(model->file);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const atollrt::Graph* const graph = &loaded->graphs.front();
  ASSERT_EQ(graph->nodes.size(), 1u);
  EXPECT_TRUE(IsCompiledOp(graph->nodes[0]));
  ASSERT_EQ(graph->compiled.size(), 1u);
  const auto stored = atollrt::WriteExecutable(*executable);
  EXPECT_TRUE(std::ranges::equal(graph->compiled[0], stored));
  EXPECT_EQ(graph->tensors[graph->inputs[0]].name, model->inputs[0].name);
  EXPECT_EQ(graph->tensors[graph->outputs[0]].name, model->outputs[0].name);
  // The same executable has the same name everywhere, another one another.
  EXPECT_EQ(MakeExecutableModel(*Table())->name, model->name);
  EXPECT_NE(MakeExecutableModel(*Table(9))->name, model->name);
}

TEST(NetworkChip, RunsWhatItUploads) {
  Host host;
  const auto device = host.Open();
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(device->info().array_rows, 64u);
  EXPECT_TRUE(device->info().emulated);
  EXPECT_THAT(device->info().description, HasSubstr("by the server at " + host.address()));
  const auto id = device->Load(Table());
  ASSERT_TRUE(id.ok()) << id.status().message();
  RequestReport report;
  for (uint8_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(RunTable(device.get(), *id, i, &report).ok());
  }
  EXPECT_EQ(report.device_cycles, 1234u);
  EXPECT_EQ(report.bytes_to_device, kCount);
  EXPECT_EQ(host.loads(), 1);
  // Another client finds it there.
  const auto other = host.Open();
  const auto other_id = other->Load(Table());
  ASSERT_TRUE(other_id.ok());
  EXPECT_TRUE(RunTable(other.get(), *other_id, 3).ok());
  EXPECT_EQ(host.loads(), 1);
}

TEST(NetworkChip, SeveralRequestsAreUnderWay) {
  Host host;
  std::atomic<int> now = 0, most = 0;
  host.infer = [&](int, grpc::ServerContext*, inference::ModelInferResponse*) {
    const int before = most;
    most = std::max(before, ++now);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    --now;
    return grpc::Status::OK;
  };
  const auto device = host.Open();
  const auto id = device->Load(Table());
  ASSERT_TRUE(id.ok());
  std::vector<std::thread> threads;
  for (uint8_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint8_t i = 0; i < 10; ++i) {
        const Status status = RunTable(device.get(), *id, static_cast<uint8_t>(thread * 10 + i));
        EXPECT_TRUE(status.ok()) << status.message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(host.inferences(), 40);
  EXPECT_GT(most, 1);
}

TEST(NetworkChip, UploadsAgainWhatMadeRoom) {
  Host host;
  const auto device = host.Open();
  const auto id = device->Load(Table());
  ASSERT_TRUE(id.ok());
  for (uint8_t i = 0; i < 5; ++i) {
    host.Forget();
    const Status status = RunTable(device.get(), *id, i);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(host.loads(), 6);
  EXPECT_EQ(device->health().failures, 0u);
}

TEST(NetworkChip, ComesBackWhenTheServerWasBusy) {
  Host host;
  host.infer = [](int number, grpc::ServerContext* context, inference::ModelInferResponse*) {
    if (number % 3 != 0) {
      context->AddTrailingMetadata("grpc-retry-pushback-ms", "2");
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the queue is full");
    }
    return grpc::Status::OK;
  };
  const auto device = host.Open();
  const auto id = device->Load(Table());
  ASSERT_TRUE(id.ok());
  for (uint8_t i = 0; i < 5; ++i) EXPECT_TRUE(RunTable(device.get(), *id, i).ok());
  EXPECT_EQ(host.inferences(), 15);
  EXPECT_EQ(device->health().failures, 0u);
  // Not beyond its deadline.
  host.infer = [](int, grpc::ServerContext* context, inference::ModelInferResponse*) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", "1");
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the queue is full");
  };
  const Status late = RunTable(device.get(), *id, 0, nullptr, std::chrono::milliseconds(50));
  EXPECT_FALSE(late.ok());
}

TEST(NetworkChip, WhatServersSayIsNotBelieved) {
  using Infer = decltype(Host::infer);
  const std::pair<const char*, Infer> cases[] = {
      {"no output",
       [](int, grpc::ServerContext*, inference::ModelInferResponse* response) {
         response->clear_raw_output_contents();
         return grpc::Status::OK;
       }},
      {"two outputs",
       [](int, grpc::ServerContext*, inference::ModelInferResponse* response) {
         response->add_raw_output_contents("more");
         return grpc::Status::OK;
       }},
      {"a short one",
       [](int, grpc::ServerContext*, inference::ModelInferResponse* response) {
         response->mutable_raw_output_contents(0)->resize(kCount - 1);
         return grpc::Status::OK;
       }},
      {"a long one",
       [](int, grpc::ServerContext*, inference::ModelInferResponse* response) {
         response->mutable_raw_output_contents(0)->resize(1 << 20);
         return grpc::Status::OK;
       }},
      {"another code, and a long sentence",
       [](int, grpc::ServerContext*, inference::ModelInferResponse*) {
         return grpc::Status(grpc::StatusCode::DATA_LOSS, std::string(1000, '\x01'));
       }},
      {"cancelled",
       [](int, grpc::ServerContext*, inference::ModelInferResponse*) {
         return grpc::Status(grpc::StatusCode::CANCELLED, "");
       }},
  };
  for (const auto& [name, infer] : cases) {
    SCOPED_TRACE(name);
    Host host;
    // The second time all is well: whatever it was, the request is repeated.
    host.infer = [&, &wrong = infer](int number, grpc::ServerContext* context,
                                     inference::ModelInferResponse* response) {
      return number == 1 ? wrong(number, context, response) : grpc::Status::OK;
    };
    const auto device = host.Open();
    const auto id = device->Load(Table());
    ASSERT_TRUE(id.ok());
    const Status status = RunTable(device.get(), *id, 1);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(device->health().failures, 1u);
  }
}

TEST(NetworkChip, DescriptionsOfNoDevice) {
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"array_rows", "0"},
                                          {"array_rows", "-1"},
                                          {"array_columns", "x"},
                                          {"memory_bytes", ""},
                                          {"clock_hz", "1e9"},
                                          {"program_memory_bytes", "99999999999999999999999"},
                                          {"emulated", "2"},
                                          {"request_timeout_min_ms", "100000000"},
                                          {"isa_version", " 1"},
                                          {"host_ns", "1 "},
                                          {"link_bytes_per_second", "0x10"}}) {
    SCOPED_TRACE(name + "=" + value);
    Host host;
    host.properties[name] = value;
    const auto chip = NetworkChip::Open(host.address(), {.name = "it"}, Clock::now() + kLong);
    EXPECT_EQ(chip.status().code(), StatusCode::kDeviceLost);
    EXPECT_THAT(chip.status().message(), HasSubstr(name));
    host.properties.erase(name);
    EXPECT_FALSE(NetworkChip::Open(host.address(), {.name = "it"}, Clock::now() + kLong).ok());
  }
  for (const char* family : {"", "Coral", "something"}) {
    Host host;
    host.properties["family"] = family;
    const auto chip = NetworkChip::Open(host.address(), {.name = "it"}, Clock::now() + kLong);
    EXPECT_EQ(chip.status().code(), StatusCode::kUnsupported) << family;
  }
}

TEST(NetworkChip, RefusalsAreTold) {
  Host host;
  host.metadata_status = {grpc::StatusCode::NOT_FOUND, "no such model"};
  const auto open = [&] {
    return NetworkChip::Open(host.address(), {.name = "it"}, Clock::now() + kLong).status();
  };
  EXPECT_EQ(open().code(), StatusCode::kUnsupported);
  EXPECT_THAT(open().message(), HasSubstr("--share-device"));
  host.metadata_status = {grpc::StatusCode::UNAUTHENTICATED, "a token"};
  EXPECT_EQ(open().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(open().message(), HasSubstr("ATOLL_GRPC_TOKEN_FILE"));
  host.metadata_status = grpc::Status::OK;
  host.load_status = {grpc::StatusCode::PERMISSION_DENIED, "not\nhere"};
  const auto device = host.Open();
  const auto id = device->Load(Table());
  EXPECT_EQ(id.status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(id.status().message(), HasSubstr("not here"));
}

TEST(NetworkChip, AServerThatGoesAwayLosesNothing) {
  auto host = std::make_unique<Host>();
  const auto device = host->Open(atollrt::OnDeviceLoss::kFail);
  const auto id = device->Load(Table());
  ASSERT_TRUE(id.ok());
  EXPECT_TRUE(RunTable(device.get(), *id, 1).ok());
  host->Kill();
  EXPECT_EQ(RunTable(device.get(), *id, 2).code(), StatusCode::kDeviceLost);
}

TEST(NetworkChip, AServerThatNeverAnswersIsGivenUp) {
  Host host;
  host.infer = [](int number, grpc::ServerContext* context, inference::ModelInferResponse*) {
    while (number == 1 && !context->IsCancelled()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return grpc::Status::OK;
  };
  const auto device = host.Open();
  const auto id = device->Load(Table());
  ASSERT_TRUE(id.ok());
  // The first attempt ends at its deadline, and the second one succeeds.
  const Status status = RunTable(device.get(), *id, 1, nullptr, std::chrono::milliseconds(200));
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(host.inferences(), 2);
}

}  // namespace
}  // namespace atollserve

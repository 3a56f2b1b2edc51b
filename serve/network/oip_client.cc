// SPDX-License-Identifier: Apache-2.0
#include "serve/network/oip_client.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "inference.grpc.pb.h"
#include "serve/inference/inference_server.h"

namespace atollserve {
namespace {

using atollrt::Clock;
using atollrt::Format;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;

// A host that answers pings no more is given up after both; pings go out while something is
// awaited.
constexpr int kPingEveryMs = 2'000;
constexpr int kPingTimeoutMs = 2'000;
constexpr int kReconnectMinMs = 100;
constexpr int kReconnectMaxMs = 1'000;
constexpr std::chrono::milliseconds kRetryMin{1}, kRetryMax{1000};

std::string Variable(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

// The contents of the file that a variable names; "" without one.
Result<std::string> FileOf(const char* variable) {
  constexpr std::streamsize kMost = 1 << 20;
  const std::string path = Variable(variable);
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(kMost), '\0');
  file.read(text.data(), kMost);
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  if (text.empty() || file.bad()) {
    return atollrt::InvalidArgument("$%s is '%s', which cannot be read or is empty", variable,
                                    path.c_str());
  }
  return text;
}

bool IsLoopback(std::string_view address) {
  const std::string_view host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host.starts_with("127.") || host == "[::1]";
}

std::chrono::system_clock::time_point SystemTime(Deadline deadline) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(
             std::max(deadline - Clock::now(), Clock::duration::zero()));
}

// gRPC takes a connection down on threads of its own, after its channel was destroyed. A process
// that ends in the meantime has OpenSSL's tables freed under a handshake: it waits for these
// threads first, unless somebody still uses gRPC.
class GrpcEnd {
 public:
  // To be called after OpenSSL was used, so that this ends before it.
  static void AwaitAtExit() { static const GrpcEnd end; }

  class Use {
   public:
    Use() { ++uses_; }
    ~Use() { --uses_; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
  };

  GrpcEnd(const GrpcEnd&) = delete;
  GrpcEnd& operator=(const GrpcEnd&) = delete;

 private:
  GrpcEnd() = default;
  ~GrpcEnd() {
    constexpr std::chrono::milliseconds kLongest{1000}, kBetween{1};
    const auto end = Clock::now() + kLongest;
    while (uses_ == 0 && grpc_is_initialized() != 0 && Clock::now() < end) {
      std::this_thread::sleep_for(kBetween);
    }
  }

  inline static std::atomic<int> uses_ = 0;
};

// From "grpc-retry-pushback-ms"; nullopt if the server does not say.
std::optional<std::chrono::milliseconds> PushbackOf(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find("grpc-retry-pushback-ms");
  if (found == metadata.end()) return std::nullopt;
  int ms = 0;
  const char* const end = found->second.data() + found->second.size();
  const auto read = std::from_chars(found->second.data(), end, ms);
  if (read.ec != std::errc() || ms < 0) return kRetryMax;
  return std::clamp(std::chrono::milliseconds(ms), kRetryMin, kRetryMax);
}

// What a server of ours says of its error; nullopt of others, and of what is none.
std::optional<StatusCode> CodeOf(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(kCodeMetadata);
  if (found == metadata.end()) return std::nullopt;
  int code = 0;
  const char* const end = found->second.data() + found->second.size();
  const auto read = std::from_chars(found->second.data(), end, code);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  const auto known = static_cast<StatusCode>(code);
  switch (known) {
    // Those that would say something about this side, or the way, are gRPC's own.
    case StatusCode::kInvalidArgument:
    case StatusCode::kCorruptModel:
    case StatusCode::kUnsupported:
    case StatusCode::kResourceExhausted:
    case StatusCode::kTimeout:
      return known;
    default:
      return std::nullopt;
  }
}

Status ToStatus(const grpc::Status& status, const std::string& address, bool is_busy,
                std::optional<StatusCode> told) {
  const auto code = [&] {
    if (told.has_value() && !is_busy) return *told;
    switch (status.error_code()) {
      case grpc::StatusCode::UNAVAILABLE:
        return is_busy ? StatusCode::kDeviceBusy : StatusCode::kDeviceLost;
      case grpc::StatusCode::CANCELLED:  // by the server, which ends
      case grpc::StatusCode::UNKNOWN:
        return StatusCode::kDeviceLost;
      case grpc::StatusCode::NOT_FOUND:
        return StatusCode::kNotFound;
      case grpc::StatusCode::UNAUTHENTICATED:
      case grpc::StatusCode::PERMISSION_DENIED:
        return StatusCode::kPermissionDenied;
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return StatusCode::kTimeout;
      case grpc::StatusCode::INVALID_ARGUMENT:
        return StatusCode::kInvalidArgument;
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
        return StatusCode::kResourceExhausted;
      case grpc::StatusCode::UNIMPLEMENTED:
        return StatusCode::kUnsupported;
      default:
        return StatusCode::kInternal;
    }
  }();
  if (status.ok()) return {};
  std::string sentence = status.error_message().substr(0, 500);
  for (char& c : sentence) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  if (sentence.empty()) sentence = Format("code %d", static_cast<int>(status.error_code()));
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
    sentence += "; $ATOLL_GRPC_TOKEN_FILE names a file that has it";
  }
  return {code, Format("%s says: %s", address.c_str(), sentence.c_str())};
}

class Call final : public OipCall {
 public:
  explicit Call(std::string address) : address_(std::move(address)) {}
  ~Call() override {
    context_.TryCancel();
    WaitUntil(Deadline::max());
  }

  void Start(inference::GRPCInferenceService::Stub* stub) {
    stub->async()->ModelInfer(&context_, &request_, &response_, [this](grpc::Status status) {
      const std::lock_guard lock(mutex_);
      status_ = std::move(status);
      is_over_ = true;
      changed_.notify_all();
    });
  }

  Result<Answer> Await(Deadline deadline) override {
    if (!WaitUntil(deadline)) {
      context_.TryCancel();
      WaitUntil(Deadline::max());
      return atollrt::Timeout("%s did not answer in time", address_.c_str());
    }
    if (!status_.ok()) {
      const auto pushback = PushbackOf(context_);
      if (pushback.has_value()) retry_after_ = *pushback;
      return ToStatus(status_, address_, pushback.has_value(), CodeOf(context_));
    }
    Answer answer;
    for (const std::string& output : response_.raw_output_contents()) {
      answer.outputs.emplace_back(reinterpret_cast<const uint8_t*>(output.data()), output.size());
    }
    const auto number = [&](const char* name) -> int64_t {
      const auto found = response_.parameters().find(name);
      return found == response_.parameters().end()
                 ? 0
                 : std::max<int64_t>(found->second.int64_param(), 0);
    };
    answer.device_cycles = number("atoll_device_cycles");
    answer.queue_ns = std::min<int64_t>(number("atoll_queue_us"), INT32_MAX) * 1000;
    return answer;
  }

  std::chrono::milliseconds retry_after() const override { return retry_after_; }

  inference::ModelInferRequest* request() { return &request_; }
  grpc::ClientContext* context() { return &context_; }

 private:
  bool WaitUntil(Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (deadline == Deadline::max()) {
      changed_.wait(lock, [this] { return is_over_; });
      return true;
    }
    return changed_.wait_until(lock, deadline, [this] { return is_over_; });
  }

  const std::string address_;
  grpc::ClientContext context_;
  inference::ModelInferRequest request_;
  inference::ModelInferResponse response_;
  std::chrono::milliseconds retry_after_ = kRetryMax;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;  // and status_ is what it ended with
  grpc::Status status_;
};

class Client final : public OipClient {
 public:
  Client(std::string address, const OipAccess& access)
      : address_(std::move(address)),
        authorization_(access.token.empty() ? "" : "Bearer " + access.token) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    // A connection of its own, which is not backed off from for the failures of others.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEveryMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMinMs);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
    if (access.tls) {
      credentials = grpc::SslCredentials({access.ca, access.key, access.certificate});
    }
    channel_ = grpc::CreateCustomChannel("dns:///" + address_, credentials, arguments);
    stub_ = inference::GRPCInferenceService::NewStub(channel_);
  }

  Status WaitForConnection(Deadline deadline) {
    // At once if nobody listens there, and not only at the deadline: whoever waits looks again.
    grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    while (state != GRPC_CHANNEL_READY) {
      if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) {
        return atollrt::NotFound("nobody can be reached at %s", address_.c_str());
      }
      if (!channel_->WaitForStateChange(state, SystemTime(deadline))) {
        return atollrt::NotFound("%s does not answer", address_.c_str());
      }
      state = channel_->GetState(/*try_to_connect=*/true);
    }
    return {};
  }

  Result<std::map<std::string, std::string>> Properties(const std::string& model,
                                                        Deadline deadline) override {
    inference::ModelMetadataRequest request;
    request.set_name(model);
    inference::ModelMetadataResponse response;
    ATOLL_RETURN_IF_ERROR(Ask(deadline, [&](grpc::ClientContext* context) {
      return stub_->ModelMetadata(context, request, &response);
    }));
    return std::map<std::string, std::string>(response.properties().begin(),
                                              response.properties().end());
  }

  Result<OipModel> Describe(const std::string& model, Deadline deadline) override {
    inference::ModelMetadataRequest request;
    request.set_name(model);
    inference::ModelMetadataResponse response;
    ATOLL_RETURN_IF_ERROR(Ask(deadline, [&](grpc::ClientContext* context) {
      return stub_->ModelMetadata(context, request, &response);
    }));
    const auto tensors = [](const auto& described) {
      std::vector<OipTensor> all;
      for (const auto& one : described) {
        all.push_back({one.name(), one.datatype(), {one.shape().begin(), one.shape().end()}});
      }
      return all;
    };
    return OipModel{tensors(response.inputs()), tensors(response.outputs())};
  }

  Result<bool> IsReady(const std::string& model, Deadline deadline) override {
    inference::ModelReadyRequest request;
    request.set_name(model);
    inference::ModelReadyResponse response;
    const Status status = Ask(deadline, [&](grpc::ClientContext* context) {
      return stub_->ModelReady(context, request, &response);
    });
    if (status.code() == StatusCode::kNotFound) return false;
    ATOLL_RETURN_IF_ERROR(status);
    return response.ready();
  }

  Status Load(const std::string& model, std::span<const uint8_t> file, Deadline deadline) override {
    inference::RepositoryModelLoadRequest request;
    request.set_model_name(model);
    (*request.mutable_parameters())["file:1/model.tflite"].set_bytes_param(file.data(),
                                                                           file.size());
    inference::RepositoryModelLoadResponse response;
    return Ask(deadline, [&](grpc::ClientContext* context) {
      return stub_->RepositoryModelLoad(context, request, &response);
    });
  }

  std::unique_ptr<OipCall> Start(const std::string& model, std::span<const OipTensor> tensors,
                                 std::span<const std::span<const uint8_t>> inputs,
                                 uint32_t priority, Deadline deadline) override {
    auto call = std::make_unique<Call>(address_);
    inference::ModelInferRequest* const request = call->request();
    request->set_model_name(model);
    if (priority != 0) (*request->mutable_parameters())["priority"].set_int64_param(priority);
    for (size_t i = 0; i < tensors.size(); ++i) {
      auto* const input = request->add_inputs();
      input->set_name(tensors[i].name);
      input->set_datatype(tensors[i].datatype);
      for (const int64_t size : tensors[i].shape) input->add_shape(size);
      request->add_raw_input_contents(inputs[i].data(), inputs[i].size());
    }
    Prepare(call->context(), deadline);
    call->Start(stub_.get());
    return call;
  }

 private:
  void Prepare(grpc::ClientContext* context, Deadline deadline) const {
    context->set_deadline(SystemTime(deadline));
    if (!authorization_.empty()) context->AddMetadata("authorization", authorization_);
  }
  template <typename Function>
  Status Ask(Deadline deadline, const Function& function) const {
    grpc::ClientContext context;
    Prepare(&context, deadline);
    const grpc::Status status = function(&context);
    return ToStatus(status, address_, PushbackOf(context).has_value(), CodeOf(context));
  }

  const std::string address_;
  const std::string authorization_;
  const GrpcEnd::Use use_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
};

}  // namespace

Result<OipAccess> AccessFromEnvironment(const std::string& address) {
  OipAccess access;
  ATOLL_ASSIGN_OR_RETURN(access.ca, FileOf("ATOLL_GRPC_CA"));
  ATOLL_ASSIGN_OR_RETURN(access.certificate, FileOf("ATOLL_GRPC_CERT"));
  ATOLL_ASSIGN_OR_RETURN(access.key, FileOf("ATOLL_GRPC_KEY"));
  ATOLL_ASSIGN_OR_RETURN(access.token, FileOf("ATOLL_GRPC_TOKEN_FILE"));
  if (access.token.empty()) access.token = Variable("ATOLL_GRPC_TOKEN");
  while (!access.token.empty() &&
         std::string_view(" \t\r\n").find(access.token.back()) != std::string_view::npos) {
    access.token.pop_back();
  }
  const bool is_text =
      std::ranges::all_of(access.token, [](char c) { return c > ' ' && c < '\x7f'; });
  if (!is_text || access.token.size() > 4096) {
    return atollrt::InvalidArgument(
        "the token of $ATOLL_GRPC_TOKEN_FILE or $ATOLL_GRPC_TOKEN has other than printable "
        "characters");
  }
  if (access.certificate.empty() != access.key.empty()) {
    return atollrt::InvalidArgument("$ATOLL_GRPC_CERT and $ATOLL_GRPC_KEY go together");
  }
  const bool is_insecure = Variable("ATOLL_GRPC_INSECURE") == "1";
  access.tls = !access.ca.empty() || (!IsLoopback(address) && !is_insecure);
  return access;
}

Result<std::unique_ptr<OipClient>> OipClient::Connect(const std::string& address,
                                                      const OipAccess& access, Deadline deadline) {
  // Errors are in what is returned. Whoever wants gRPC's own lines asks for them as gRPC says.
  static const bool is_quiet = [] {
    const bool is_wanted = getenv("GRPC_VERBOSITY") != nullptr;
    if (!is_wanted) gpr_set_log_function([](gpr_log_func_args*) {});
    return !is_wanted;
  }();
  (void)is_quiet;
  auto client = std::make_unique<Client>(address, access);
  Status status = client->WaitForConnection(deadline);
  GrpcEnd::AwaitAtExit();
  if (!status.ok() && access.tls) {
    return std::move(status).WithContext(
        "over TLS ($ATOLL_GRPC_CA names who signs its certificate; $ATOLL_GRPC_INSECURE=1 does "
        "without)");
  }
  ATOLL_RETURN_IF_ERROR(status);
  return std::unique_ptr<OipClient>(std::move(client));
}

}  // namespace atollserve

// SPDX-License-Identifier: Apache-2.0
#include "serve/grpc/grpc_server.h"

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <mutex>
#include <string_view>
#include <utility>

#include "inference.grpc.pb.h"
#include "serve/grpc/grpc_messages.h"

namespace atollserve {
namespace {

using atollrt::Format;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;

// ---- Calls --------------------------------------------------------------------------------------

GrpcCall CallOf(const grpc::ServerContextBase& context) {
  GrpcCall call;
  call.peer = context.peer();
  const auto begins = [&](std::string_view prefix) { return call.peer.starts_with(prefix); };
  call.is_unix = begins("unix:");
  call.is_local = call.is_unix || begins("ipv4:127.") || begins("ipv6:[::1]") ||
                  begins("ipv6:%5B::1%5D") || begins("ipv6:[::ffff:127.");
  const auto found = context.client_metadata().find("authorization");
  if (found != context.client_metadata().end()) {
    call.authorization.assign(found->second.data(), found->second.size());
  }
  const auto authority = context.auth_context();
  if (authority != nullptr && authority->IsPeerAuthenticated()) {
    const auto names = authority->FindPropertyValues("x509_common_name");
    call.certificate = names.empty() ? "?" : std::string(names[0].data(), names[0].size());
  }
  return call;
}

std::string ClientOf(const GrpcCall& call) {
  return "grpc " + (call.certificate.empty() ? call.peer : call.certificate);
}

// The code of an error as ours is, for programs of ours: several of them are one of gRPC's.
void TellCode(const Status& status, grpc::ServerContextBase* context) {
  if (status.ok()) return;
  context->AddTrailingMetadata(kCodeMetadata, std::to_string(static_cast<int>(status.code())));
}

// What all calls share.
struct Shared {
  GrpcServerOptions options;
  InferenceServer* inference = nullptr;

  SharedMemory* MemoryFor(const GrpcCall& call) const {
    return call.is_local ? options.memory : nullptr;
  }
  // UNAUTHENTICATED if it may not come.
  grpc::Status Admit(const GrpcCall& call) const {
    const Status status = options.admit ? options.admit(call) : Status();
    if (status.ok()) return grpc::Status::OK;
    return {grpc::StatusCode::UNAUTHENTICATED, status.message()};
  }
  // As RequestOf.
  Result<InferRequest> Read(const inference::ModelInferRequest& message, const GrpcCall& call,
                            std::optional<MonotonicTime> deadline, AnswerForm* form) const {
    form->id = message.id();
    ATOLL_ASSIGN_OR_RETURN(const auto model,
                           inference->Info(message.model_name(), message.model_version()));
    return RequestOf(message, *model, ClientOf(call), deadline, MemoryFor(call), form);
  }
};

// How a request is cancelled, from when it has begun until it has ended.
class Cancelling {
 public:
  void Began(CancelFunction cancel) {
    {
      const std::lock_guard lock(mutex_);
      if (has_ended_) return;
      if (!is_cancelled_) {
        cancel_ = std::move(cancel);
        return;
      }
    }
    cancel();
  }
  void Ended() {
    CancelFunction forgotten;  // outside of the mutex
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    std::swap(cancel_, forgotten);
  }
  void Cancel() {
    CancelFunction cancel;
    {
      const std::lock_guard lock(mutex_);
      is_cancelled_ = true;
      std::swap(cancel_, cancel);
    }
    if (cancel) cancel();
  }

 private:
  std::mutex mutex_;
  bool is_cancelled_ = false, has_ended_ = false;
  CancelFunction cancel_;
};

// ModelInfer. gRPC calls OnDone after Finish, and when OnCancel, if it was called, has returned.
class InferCall final : public grpc::ServerUnaryReactor {
 public:
  InferCall(const Shared& shared, grpc::CallbackServerContext* context,
            const inference::ModelInferRequest* request, inference::ModelInferResponse* response) {
    const GrpcCall call = CallOf(*context);
    if (const grpc::Status status = shared.Admit(call); !status.ok()) {
      Finish(status);
      return;
    }
    auto form = std::make_shared<AnswerForm>();
    auto made = shared.Read(*request, call, DeadlineOf(context->deadline()), form.get());
    if (!made.ok()) {
      TellCode(made.status(), context);
      Finish(ToGrpc(made.status()));
      return;
    }
    // The reactor is there until Finish; what cancels it may be longer.
    const auto cancelling = cancelling_;
    cancelling->Began(shared.inference->Infer(
        *std::move(made), [this, cancelling, form, context, response](InferOutcome outcome) {
          cancelling->Ended();
          Status ended = outcome.status;
          if (!ended.ok() && outcome.retry_after.has_value()) {
            context->AddTrailingMetadata("grpc-retry-pushback-ms",
                                         std::to_string(outcome.retry_after->count()));
          }
          if (ended.ok()) ended = SetAnswer(std::move(outcome), *form, response);
          TellCode(ended, context);
          Finish(ToGrpc(ended));
        }));
  }

  void OnCancel() override { cancelling_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<Cancelling> cancelling_ = std::make_shared<Cancelling>();
};

// ModelStreamInfer: answers in the order of the requests, of which so many are under way.
class StreamCall final : public grpc::ServerBidiReactor<inference::ModelInferRequest,
                                                        inference::ModelStreamInferResponse> {
  using Lock = std::unique_lock<std::mutex>;

 public:
  StreamCall(const Shared& shared, grpc::CallbackServerContext* context)
      : shared_(shared), call_(CallOf(*context)) {
    if (const grpc::Status status = shared.Admit(call_); !status.ok()) {
      is_finished_ = true;
      Finish(status);
      return;
    }
    is_reading_ = true;
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    std::shared_ptr<One> one;
    Lock lock(mutex_);
    is_reading_ = false;
    if (ok) {
      one = std::make_shared<One>();
      one->request = std::move(incoming_);
      incoming_.Clear();
      queue_.push_back(one);
      is_beginning_ = true;
      lock.unlock();
      Begin(one);
      lock.lock();
      is_beginning_ = false;
    } else {
      is_read_to_the_end_ = true;
    }
    GoOn(&lock);
  }

  void OnWriteDone(bool ok) override {
    Lock lock(mutex_);
    is_writing_ = false;
    if (!ok) is_broken_ = true;
    queue_.pop_front();
    GoOn(&lock);
  }

  void OnCancel() override {
    Lock lock(mutex_);
    is_broken_ = true;
    const std::vector<std::shared_ptr<One>> all(queue_.begin(), queue_.end());
    lock.unlock();
    for (const auto& one : all) one->cancelling.Cancel();
    lock.lock();
    GoOn(&lock);
  }

  void OnDone() override { delete this; }

 private:
  struct One {
    inference::ModelInferRequest request;
    AnswerForm form;
    Cancelling cancelling;
    bool has_ended = false;  // guarded by the call's mutex
    inference::ModelStreamInferResponse response;
  };

  void Begin(const std::shared_ptr<One>& one) {
    auto request = shared_.Read(one->request, call_, std::nullopt, &one->form);
    if (!request.ok()) {
      InferOutcome refused;
      refused.status = request.status();
      End(one, std::move(refused));
      return;
    }
    one->cancelling.Began(shared_.inference->Infer(
        *std::move(request), [this, one](InferOutcome outcome) { End(one, std::move(outcome)); }));
  }

  void End(const std::shared_ptr<One>& one, InferOutcome outcome) {
    one->cancelling.Ended();
    Status status = outcome.status;
    if (status.ok()) {
      status = SetAnswer(std::move(outcome), one->form, one->response.mutable_infer_response());
    }
    if (!status.ok()) {
      one->response.set_error_message(status.message());
      one->response.mutable_infer_response()->Clear();
      one->response.mutable_infer_response()->set_id(one->form.id);
    }
    Lock lock(mutex_);
    one->has_ended = true;
    GoOn(&lock);
  }

  // Reads, writes and finishes what can be; with the mutex held, which it gives back. The call may
  // be deleted as soon as it has finished.
  void GoOn(Lock* lock) {
    if (is_finished_) return;
    if (!is_broken_ && !is_writing_ && !queue_.empty() && queue_.front()->has_ended) {
      is_writing_ = true;
      StartWrite(&queue_.front()->response);
    }
    if (is_broken_ && !is_writing_) {
      while (!queue_.empty() && queue_.front()->has_ended) queue_.pop_front();
    }
    if (!is_broken_ && !is_read_to_the_end_ && !is_reading_ && !is_beginning_ &&
        queue_.size() < shared_.options.requests_of_a_stream) {
      is_reading_ = true;
      StartRead(&incoming_);
    }
    const bool is_over = (is_read_to_the_end_ || is_broken_) && !is_reading_ && !is_writing_ &&
                         !is_beginning_ && queue_.empty();
    if (!is_over) return;
    is_finished_ = true;
    const bool is_broken = is_broken_;
    lock->unlock();
    Finish(is_broken ? grpc::Status(grpc::StatusCode::CANCELLED, "the client is gone")
                     : grpc::Status::OK);
  }

  const Shared& shared_;
  const GrpcCall call_;
  inference::ModelInferRequest incoming_;
  std::mutex mutex_;  // guards what follows
  std::deque<std::shared_ptr<One>> queue_;
  bool is_reading_ = false, is_beginning_ = false, is_writing_ = false, is_read_to_the_end_ = false;
  bool is_broken_ = false, is_finished_ = false;
};

// ---- Methods ------------------------------------------------------------------------------------

using AsyncInfer = inference::GRPCInferenceService::WithCallbackMethod_ModelInfer<
    inference::GRPCInferenceService::WithCallbackMethod_ModelStreamInfer<
        inference::GRPCInferenceService::Service>>;

// ModelInfer and ModelStreamInfer answer when the inference has ended; the others, which do not
// take long or load models, have a thread each meanwhile.
class Service final : public AsyncInfer {
 public:
  explicit Service(const Shared& shared) : shared_(shared) {}

  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context,
                                       const inference::ModelInferRequest* request,
                                       inference::ModelInferResponse* response) override {
    return new InferCall(shared_, context, request, response);
  }
  grpc::ServerBidiReactor<inference::ModelInferRequest, inference::ModelStreamInferResponse>*
  ModelStreamInfer(grpc::CallbackServerContext* context) override {
    return new StreamCall(shared_, context);
  }

  grpc::Status ServerLive(grpc::ServerContext*, const inference::ServerLiveRequest*,
                          inference::ServerLiveResponse* response) override {
    response->set_live(true);
    return grpc::Status::OK;
  }
  grpc::Status ServerReady(grpc::ServerContext*, const inference::ServerReadyRequest*,
                           inference::ServerReadyResponse* response) override {
    response->set_ready(models().ready());
    return grpc::Status::OK;
  }
  grpc::Status ModelReady(grpc::ServerContext* context, const inference::ModelReadyRequest* request,
                          inference::ModelReadyResponse* response) override {
    return Answer(context, [&]() -> Status {
      response->set_ready(models().ModelReady(request->name(), request->version()));
      return {};
    });
  }
  grpc::Status ServerMetadata(grpc::ServerContext* context, const inference::ServerMetadataRequest*,
                              inference::ServerMetadataResponse* response) override {
    return Answer(context, [&]() -> Status {
      response->set_name(shared_.options.name);
      response->set_version(shared_.options.version);
      for (const char* extension :
           {"model_configuration", "model_repository", "schedule_policy", "statistics"}) {
        response->add_extensions(extension);
      }
      if (shared_.options.memory != nullptr) response->add_extensions("system_shared_memory");
      return {};
    });
  }
  grpc::Status ModelMetadata(grpc::ServerContext* context,
                             const inference::ModelMetadataRequest* request,
                             inference::ModelMetadataResponse* response) override {
    return Answer(context, [&]() -> Status {
      ATOLL_ASSIGN_OR_RETURN(const auto info, models().Info(request->name(), request->version()));
      SetMetadata(*info, response);
      return {};
    });
  }
  grpc::Status ModelConfig(grpc::ServerContext* context,
                           const inference::ModelConfigRequest* request,
                           inference::ModelConfigResponse* response) override {
    return Answer(context, [&]() -> Status {
      ATOLL_ASSIGN_OR_RETURN(const auto info, models().Info(request->name(), request->version()));
      SetConfig(*info, response->mutable_config());
      return {};
    });
  }
  grpc::Status ModelStatistics(grpc::ServerContext* context,
                               const inference::ModelStatisticsRequest* request,
                               inference::ModelStatisticsResponse* response) override {
    return Answer(context, [&]() -> Status {
      ATOLL_ASSIGN_OR_RETURN(const std::vector<atollserve::ModelStatistics> all,
                             models().Statistics(request->name(), request->version()));
      for (const auto& one : all) SetStatistics(one, response->add_model_stats());
      return {};
    });
  }
  grpc::Status RepositoryIndex(grpc::ServerContext* context,
                               const inference::RepositoryIndexRequest* request,
                               inference::RepositoryIndexResponse* response) override {
    return Answer(context, [&]() -> Status {
      for (const ModelEntry& entry : models().Index()) {
        if (request->ready() && entry.state != ModelState::kReady) continue;
        auto* const model = response->add_models();
        model->set_name(entry.name);
        model->set_version(entry.version);
        model->set_state(ModelStateName(entry.state));
        model->set_reason(entry.reason);
      }
      return {};
    });
  }
  grpc::Status RepositoryModelLoad(grpc::ServerContext* context,
                                   const inference::RepositoryModelLoadRequest* request,
                                   inference::RepositoryModelLoadResponse*) override {
    return Answer(context, [&]() -> Status {
      ATOLL_RETURN_IF_ERROR(models().MayLoad(request->model_name()));
      auto parameters = request->parameters();
      ATOLL_ASSIGN_OR_RETURN(ModelUpload upload, UploadOf(&parameters));
      return models().Load(request->model_name(), std::move(upload));
    });
  }
  grpc::Status RepositoryModelUnload(grpc::ServerContext* context,
                                     const inference::RepositoryModelUnloadRequest* request,
                                     inference::RepositoryModelUnloadResponse*) override {
    return Answer(context, [&] { return models().Unload(request->model_name()); });
  }
  grpc::Status SystemSharedMemoryStatus(
      grpc::ServerContext* context, const inference::SystemSharedMemoryStatusRequest* request,
      inference::SystemSharedMemoryStatusResponse* response) override {
    return WithMemory(context, [&](SharedMemory* memory) -> Status {
      for (const SharedRegion& region : memory->regions()) {
        if (!request->name().empty() && request->name() != region.name) continue;
        auto& to = (*response->mutable_regions())[region.name];
        to.set_name(region.name);
        to.set_key(region.key);
        to.set_offset(region.offset);
        to.set_byte_size(region.bytes);
      }
      if (response->regions().empty() && !request->name().empty()) {
        return atollrt::NotFound("there is no region '%.100s'", request->name().c_str());
      }
      return {};
    });
  }
  grpc::Status SystemSharedMemoryRegister(
      grpc::ServerContext* context, const inference::SystemSharedMemoryRegisterRequest* request,
      inference::SystemSharedMemoryRegisterResponse*) override {
    return WithMemory(context, [&](SharedMemory* memory) -> Status {
      Status status = memory->Register({.name = request->name(),
                                        .key = request->key(),
                                        .offset = request->offset(),
                                        .bytes = request->byte_size()});
      // A name that is taken is the client's mistake.
      if (status.code() != StatusCode::kDeviceBusy) return status;
      return {StatusCode::kInvalidArgument, status.message()};
    });
  }
  grpc::Status SystemSharedMemoryUnregister(
      grpc::ServerContext* context, const inference::SystemSharedMemoryUnregisterRequest* request,
      inference::SystemSharedMemoryUnregisterResponse*) override {
    return WithMemory(context, [&](SharedMemory* memory) -> Status {
      if (!request->name().empty()) return memory->Unregister(request->name());
      memory->UnregisterAll();
      return {};
    });
  }
  grpc::Status CudaSharedMemoryStatus(grpc::ServerContext* context,
                                      const inference::CudaSharedMemoryStatusRequest*,
                                      inference::CudaSharedMemoryStatusResponse*) override {
    return Answer(context, [] { return Status(); });
  }
  grpc::Status CudaSharedMemoryUnregister(grpc::ServerContext* context,
                                          const inference::CudaSharedMemoryUnregisterRequest*,
                                          inference::CudaSharedMemoryUnregisterResponse*) override {
    return Answer(context, [] { return Status(); });
  }

 private:
  InferenceServer& models() const { return *shared_.inference; }
  template <typename Function>
  grpc::Status Answer(grpc::ServerContext* context, const Function& function) const {
    const grpc::Status admitted = shared_.Admit(CallOf(*context));
    if (!admitted.ok()) return admitted;
    const Status status = function();
    TellCode(status, context);
    return ToGrpc(status);
  }

  template <typename Function>
  grpc::Status WithMemory(grpc::ServerContext* context, const Function& function) const {
    return Answer(context, [&]() -> Status {
      SharedMemory* const memory = shared_.MemoryFor(CallOf(*context));
      if (memory != nullptr) return function(memory);
      return {StatusCode::kPermissionDenied,
              "shared memory is for clients on this computer, of a server that was started with "
              "--allow-shared-memory"};
    });
  }

  const Shared& shared_;
};

// ---- The server ---------------------------------------------------------------------------------

class Server final : public GrpcServer {
 public:
  Server(GrpcServerOptions options, InferenceServer* inference)
      : shared_{std::move(options), inference}, service_(shared_) {}
  ~Server() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  Status Listen() {
    const GrpcServerOptions& options = shared_.options;
    gpr_set_log_function([](gpr_log_func_args*) {});  // errors are in what is returned
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
    if (!options.certificate.empty()) {
      grpc::SslServerCredentialsOptions tls(
          options.client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
          : options.client_certificate_required
              ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
              : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
      tls.pem_root_certs = options.client_ca;
      tls.pem_key_cert_pairs.push_back({options.key, options.certificate});
      credentials = grpc::SslServerCredentials(tls);
    }
    builder.AddListeningPort(options.listen, credentials, &port_);
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(
        static_cast<int>(std::min<size_t>(options.message_bytes, std::numeric_limits<int>::max())));
    builder.SetMaxSendMessageSize(-1);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                               static_cast<int>(options.calls_of_a_connection));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // Clients that send pings more often than this are sent away; dead ones are noticed.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 300'000);
    builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 2);
    grpc::ResourceQuota quota("atoll");
    quota.SetMaxThreads(64);
    quota.Resize(std::max(options.buffered_bytes, 2 * options.message_bytes));
    builder.SetResourceQuota(quota);
    server_ = builder.BuildAndStart();
    const bool is_unix = options.listen.starts_with("unix:");
    if (server_ == nullptr || (!is_unix && port_ == 0)) {
      return {StatusCode::kDeviceBusy,
              Format("gRPC cannot listen at '%s': another program does, or it is no address of "
                     "this computer%s",
                     options.listen.c_str(),
                     options.certificate.empty() ? "" : ", or certificate and key do not fit")};
    }
    server_->GetHealthCheckService()->SetServingStatus("inference.GRPCInferenceService", true);
    return {};
  }

  int port() const override { return port_; }
  void Drain(std::chrono::milliseconds timeout) override {
    server_->GetHealthCheckService()->SetServingStatus(false);
    server_->Shutdown(std::chrono::system_clock::now() + timeout);
  }

 private:
  const Shared shared_;
  Service service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

bool IsLocalGrpcAddress(std::string_view where) {
  if (where.starts_with("unix:")) return true;
  const std::string_view host = where.substr(0, where.rfind(':'));
  return host == "localhost" || host.starts_with("127.") || host == "[::1]";
}

Result<std::unique_ptr<GrpcServer>> GrpcServer::Start(GrpcServerOptions options,
                                                      InferenceServer* inference) {
  auto server = std::make_unique<Server>(std::move(options), inference);
  ATOLL_RETURN_IF_ERROR(server->Listen());
  return std::unique_ptr<GrpcServer>(std::move(server));
}

}  // namespace atollserve

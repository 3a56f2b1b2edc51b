// SPDX-License-Identifier: Apache-2.0
#include "serve/oip/rest.h"

#include <algorithm>

#include "serve/http/admission.h"
#include "serve/inference/json_text.h"
#include "serve/oip/descriptions.h"
#include "serve/oip/infer_body.h"
#include "serve/oip/page.h"
#include "serve/oip/rest_target.h"
#include "serve/oip/upload_json.h"

namespace atollserve {
namespace {

using atollrt::InvalidArgument;
using atollrt::Status;
using atollrt::StatusCode;
using Json = nlohmann::json;

// JSON that is longer than that is not read, and numbers that are more not written, on the thread
// of the server or of an interpreter.
constexpr size_t kLongJson = 64 << 10;
// Of requests that carry no tensors and no models.
constexpr size_t kShortBody = 64 << 10;
constexpr const char* kLengthHeader = "Inference-Header-Content-Length";

HttpAnswer Text(std::string json) {
  return {
      .status = 200, .content_type = "application/json", .body = std::move(json), .headers = {}};
}
HttpAnswer Text(const Json& json) { return Text(DumpJson(json)); }
HttpAnswer Empty() { return {.status = 200, .content_type = "", .body = "", .headers = {}}; }

HttpAnswer ErrorOf(const Status& status,
                   std::optional<std::chrono::milliseconds> retry_after = {}) {
  HttpAnswer answer = Rest::Error(HttpStatusOf(status.code()), status.message());
  if (answer.status == 503) {
    const int64_t ms = retry_after ? retry_after->count() : 1000;
    answer.headers.emplace_back("Retry-After",
                                std::to_string(std::max<int64_t>((ms + 999) / 1000, 1)));
  }
  return answer;
}

HttpAnswer AnswerOf(const Status& status) { return status.ok() ? Empty() : ErrorOf(status); }

HttpAnswer WrongMethod(const char* allowed) {
  HttpAnswer answer = Rest::Error(405, std::string("this path takes ") + allowed);
  answer.headers.emplace_back("Allow", allowed);
  return answer;
}

std::string ClientOf(const HttpPeer& peer) {
  if (!peer.certificate.empty()) return peer.certificate + " at " + peer.address;
  if (peer.uid) return "user " + std::to_string(*peer.uid);
  return peer.address;
}

// "1" to "4294967295" as they are, more as that.
uint32_t PriorityOf(uint64_t priority) {
  return static_cast<uint32_t>(std::min<uint64_t>(priority, UINT32_MAX - 1));
}

}  // namespace

Rest::Rest(InferenceServer* inference, RestOptions options)
    : inference_(inference), options_(std::move(options)), parser_(256), loader_(16) {}

Rest::~Rest() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return under_way_ == 0; });
}

HttpAnswer Rest::Error(int status, const std::string& sentence) {
  return {.status = status,
          .content_type = "application/json",
          .body = DumpJson({{"error", sentence}}),
          .headers = {}};
}

HttpHandler Rest::Handler() {
  return [this](HttpRequest request, const HttpResponder& responder) {
    Handle(std::move(request), responder);
  };
}

HttpServerOptions Rest::ServerOptions(HttpLimits limits, std::shared_ptr<const TlsContext> tls) {
  HttpServerOptions options;
  limits.body_bytes = std::max(options_.body_bytes, options_.model_bytes / 3 * 4 + kShortBody);
  limits.buffered_bytes = std::max(limits.buffered_bytes, limits.body_bytes);
  options.limits = limits;
  options.tls = std::move(tls);
  options.admit = [this](const HttpRequest& head, size_t* body_bytes) {
    return Admit(head, body_bytes);
  };
  options.refusal = Error;
  return options;
}

std::optional<HttpAnswer> Rest::Admit(const HttpRequest& head, size_t* body_bytes) const {
  const RestTarget target = RestTarget::Of(head.path);
  const auto answer_of = [](HttpRefusal refusal) {
    HttpAnswer answer = Error(refusal.status, refusal.sentence);
    answer.headers = std::move(refusal.headers);
    return answer;
  };
  if (auto refusal = RefuseForeign(head, options_.hosts, "--serve-name")) {
    return answer_of(*std::move(refusal));
  }
  // The page has nothing on it but what it asks for then, and probes ask without tokens.
  const bool is_open = target.kind == RestTarget::Kind::kPage ||
                       target.kind == RestTarget::Kind::kLive ||
                       target.kind == RestTarget::Kind::kReady;
  if (!is_open) {
    if (auto refusal = RefuseStranger(head, options_.access)) {
      return answer_of(*std::move(refusal));
    }
  }
  if (target.kind == RestTarget::Kind::kLoad && head.method == "POST") {
    if (const Status status = inference_->MayLoad(target.model); !status.ok()) {
      return ErrorOf(status);
    }
  }
  *body_bytes = target.kind == RestTarget::Kind::kInfer  ? options_.body_bytes
                : target.kind == RestTarget::Kind::kLoad ? options_.model_bytes / 3 * 4 + kShortBody
                                                         : kShortBody;
  return std::nullopt;
}

void Rest::Handle(HttpRequest request, const HttpResponder& responder) {
  const RestTarget target = RestTarget::Of(request.path);
  using Kind = RestTarget::Kind;
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (target.kind == Kind::kUnknown) {
    return responder.Send(Error(404, "there is nothing at this path"));
  }
  if (target.kind == Kind::kBadName) {
    return responder.Send(Error(400, "this path has no name of a model or no version in it"));
  }
  if (target.kind == Kind::kCudaMemory) {
    return responder.Send(Error(501, "there is no CUDA here"));
  }
  if (target.posts() && request.method != "POST") return responder.Send(WrongMethod("POST"));
  if (!target.posts() && !reads) return responder.Send(WrongMethod("GET, HEAD"));
  if (target.kind == Kind::kInfer) return Infer(target, std::move(request), responder);
  if (target.kind == Kind::kLoad) {
    const auto shared = std::make_shared<HttpRequest>(std::move(request));
    if (!loader_.Add(
            [this, target, shared, responder] { responder.Send(Load(target, *shared)); })) {
      responder.Send(ErrorOf(atollrt::ResourceExhausted("too many models wait to be loaded")));
    }
    return;
  }
  responder.Send(Answer(target, &request));
}

HttpAnswer Rest::Answer(const RestTarget& target, HttpRequest* request) {
  using Kind = RestTarget::Kind;
  switch (target.kind) {
    case Kind::kServer: {
      Json extensions = {"binary_tensor_data", "classification",  "model_configuration",
                         "model_repository",   "schedule_policy", "statistics"};
      if (options_.allow_shared_memory) extensions.push_back("system_shared_memory");
      return Text(
          Json{{"name", options_.name}, {"version", AtollVersion()}, {"extensions", extensions}});
    }
    case Kind::kLive:
      return Text(Json{{"live", true}});
    case Kind::kReady: {
      if (inference_->ready()) return Text(Json{{"ready", true}, {"live", true}});
      HttpAnswer answer = Text(Json{{"ready", false}, {"live", true}});
      answer.status = 503;
      answer.headers.emplace_back("Retry-After", "1");
      return answer;
    }
    case Kind::kModel: {
      const auto model = inference_->Info(target.model, target.version);
      return model.ok() ? Text(DescribeModel(**model)) : ErrorOf(model.status());
    }
    case Kind::kModelReady: {
      if (inference_->ModelReady(target.model, target.version)) {
        return Text(Json{{"name", target.model}, {"ready", true}});
      }
      HttpAnswer answer = Text(Json{{"name", target.model}, {"ready", false}});
      answer.status = 400;
      return answer;
    }
    case Kind::kConfig: {
      const auto model = inference_->Info(target.model, target.version);
      return model.ok() ? Text(DescribeConfiguration(**model)) : ErrorOf(model.status());
    }
    case Kind::kStatistics:
    case Kind::kAllStatistics: {
      const auto all = inference_->Statistics(target.model, target.version);
      return all.ok() ? Text(DescribeStatistics(*all)) : ErrorOf(all.status());
    }
    case Kind::kIndex:
      return Index(*request);
    case Kind::kUnload:
      return AnswerOf(inference_->Unload(target.model));
    case Kind::kMemoryStatus:
    case Kind::kMemoryRegister:
    case Kind::kMemoryUnregister:
      return Memory(target, *request);
    // Clients forget all regions before they begin, of either kind.
    case Kind::kCudaStatus:
      return Text(Json::array());
    case Kind::kCudaUnregister:
      return Empty();
    case Kind::kMetrics:
      return {.status = 200,
              .content_type = "text/plain; version=0.0.4; charset=utf-8",
              .body = PrometheusText(*inference_),
              .headers = {}};
    case Kind::kState:
      return Text(DescribeState(*inference_, options_.name));
    case Kind::kPage: {
      const PageFile* const file = FindPage(request->path);
      return {.status = 200,
              .content_type = file->type,
              .body = std::string(file->text),
              .headers = {{"Content-Security-Policy",
                           "default-src 'self'; img-src 'self' blob: data:; base-uri 'none'; "
                           "form-action 'none'; frame-ancestors 'none'"},
                          {"Cross-Origin-Resource-Policy", "same-origin"},
                          {"Referrer-Policy", "no-referrer"}}};
    }
    case Kind::kInfer:
    case Kind::kLoad:
    case Kind::kUnknown:
    case Kind::kBadName:
    case Kind::kCudaMemory:
      break;
  }
  return Error(500, "the server has no answer");
}

// ---- Inference ----

void Rest::Infer(const RestTarget& target, HttpRequest request, const HttpResponder& responder) {
  const MonotonicTime came = std::chrono::steady_clock::now();
  const auto body = std::make_shared<const std::string>(std::move(request.body));
  request.body.clear();
  const std::string_view json_bytes = request.Header("inference-header-content-length");
  // As text, a number of up to 20 digits of which more than 4 may be long.
  const bool is_long = json_bytes.empty() ? body->size() > kLongJson : json_bytes.size() > 4;
  if (!is_long) return InferParsed(target, request, body, came, responder);
  const auto shared = std::make_shared<const HttpRequest>(std::move(request));
  if (!parser_.Add([this, target, shared, body, came, responder] {
        InferParsed(target, *shared, body, came, responder);
      })) {
    responder.Send(ErrorOf(atollrt::ResourceExhausted("too many long requests wait to be read")));
  }
}

Status Rest::ReadRegions(const ModelInfo& model, InferBody* body, bool may_share) const {
  bool has_regions = false;
  for (size_t i = 0; i < body->inputs.size(); ++i) {
    const auto& region = body->input_regions[i];
    if (!region) continue;
    has_regions = true;
    if (!may_share) break;
    ATOLL_RETURN_IF_ERROR(memory_.ReadInput(*region, model, body->real_values, &body->inputs[i]));
  }
  for (const WantedOutput& output : body->outputs) has_regions = has_regions || output.region;
  if (has_regions && !may_share) {
    return {StatusCode::kPermissionDenied,
            "shared memory is for clients on this computer, of a server that was started with "
            "--allow-shared-memory"};
  }
  return {};
}

HttpAnswer Rest::Outcome(const InferBody& body, const ModelInfo& model,
                         const InferOutcome& outcome) {
  for (size_t i = 0; i < body.outputs.size() && i < outcome.outputs.size(); ++i) {
    const auto& region = body.outputs[i].region;
    const std::string& bytes = outcome.outputs[i].bytes;
    if (!region) continue;
    const Status written =
        memory_.Write(*region, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    if (!written.ok()) return ErrorOf(written);
  }
  auto text = FormatInferAnswer(body, model, outcome);
  if (!text.ok()) return ErrorOf(text.status());
  HttpAnswer answer = Text(std::move(text->body));
  if (text->json_bytes) {
    answer.content_type = "application/octet-stream";
    answer.headers.emplace_back(kLengthHeader, std::to_string(*text->json_bytes));
  }
  return answer;
}

void Rest::InferParsed(const RestTarget& target, const HttpRequest& request,
                       const std::shared_ptr<const std::string>& body, MonotonicTime came,
                       const HttpResponder& responder) {
  if (responder.gone()) return;
  auto model = inference_->Info(target.model, target.version);
  if (!model.ok()) return responder.Send(ErrorOf(model.status()));
  auto read = ParseInferBody(body, request.Header("inference-header-content-length"), **model);
  if (!read.ok()) return responder.Send(ErrorOf(read.status()));
  const auto parsed = std::make_shared<InferBody>(*std::move(read));
  const bool may_share = options_.allow_shared_memory && request.peer.local;
  if (const Status status = ReadRegions(**model, parsed.get(), may_share); !status.ok()) {
    return responder.Send(ErrorOf(status));
  }

  InferRequest wanted;
  wanted.model = target.model;
  wanted.version = target.version;
  wanted.inputs = std::move(parsed->inputs);
  for (const WantedOutput& output : parsed->outputs) wanted.outputs.push_back(output.name);
  wanted.real_values = parsed->real_values;
  wanted.priority = PriorityOf(parsed->priority);
  if (parsed->timeout_us > 0) {
    // More than a day is no deadline, and does not overflow.
    wanted.deadline = came + std::chrono::microseconds(std::min<uint64_t>(
                                 parsed->timeout_us, uint64_t{86'400} * 1'000'000));
  }
  wanted.client = ClientOf(request.peer);

  {
    const std::lock_guard lock(mutex_);
    ++under_way_;
  }
  // The last of its copies ends it.
  const std::shared_ptr<void> token(nullptr, [this](void*) {
    const std::lock_guard lock(mutex_);
    --under_way_;
    ended_.notify_all();
  });
  CancelFunction cancel = inference_->Infer(
      std::move(wanted), [this, parsed, model = *model, responder, token](InferOutcome outcome) {
        if (!outcome.status.ok()) {
          return responder.Send(ErrorOf(outcome.status, outcome.retry_after));
        }
        size_t elements = 0;
        for (const OutputTensor& output : outcome.outputs) {
          elements += output.bytes.size() / std::max<size_t>(DataTypeBytes(output.type), 1);
        }
        const auto shared = std::make_shared<const InferOutcome>(std::move(outcome));
        const auto finish = [this, parsed, model, responder, shared, token] {
          responder.Send(Outcome(*parsed, *model, *shared));
        };
        const bool is_long = elements * 4 > kLongJson && !parsed->binary;
        if (!is_long || !parser_.Add(finish)) finish();
      });
  responder.OnGone(std::move(cancel));
}

// ---- Models ----

HttpAnswer Rest::Index(const HttpRequest& request) const {
  bool ready_only = false;
  if (!request.body.empty()) {
    const auto json = ParseJson(request.body);
    if (!json.ok()) return ErrorOf(json.status());
    const Json* const ready = FindMember(*json, "ready");
    if (ready != nullptr && !ready->is_boolean()) {
      return Error(400, "\"ready\" is not true or false");
    }
    ready_only = ready != nullptr && ready->get<bool>();
  }
  return Text(DescribeIndex(inference_->Index(), ready_only));
}

HttpAnswer Rest::Load(const RestTarget& target, const HttpRequest& request) {
  ModelUpload upload;
  if (!request.body.empty()) {
    auto read = ReadUpload(request.body);
    if (!read.ok()) return ErrorOf(read.status());
    upload = *std::move(read);
  }
  return AnswerOf(inference_->Load(target.model, std::move(upload)));
}

// ---- Shared memory ----

HttpAnswer Rest::Memory(const RestTarget& target, const HttpRequest& request) {
  using Kind = RestTarget::Kind;
  if (!options_.allow_shared_memory || !request.peer.local) {
    return Error(403,
                 "shared memory is for clients on this computer, of a server that was started with "
                 "--allow-shared-memory");
  }
  if (target.kind == Kind::kMemoryUnregister) {
    if (!target.region.empty()) return AnswerOf(memory_.Unregister(target.region));
    memory_.UnregisterAll();
    return Empty();
  }
  if (target.kind == Kind::kMemoryStatus) {
    Json list = Json::array();
    for (const SharedRegion& region : memory_.regions()) {
      if (!target.region.empty() && region.name != target.region) continue;
      list.push_back({{"name", region.name},
                      {"key", region.key},
                      {"offset", region.offset},
                      {"byte_size", region.bytes}});
    }
    if (list.empty() && !target.region.empty()) {
      return Error(404, "there is no region '" + target.region.substr(0, 100) + "'");
    }
    return Text(list);
  }
  const auto json = ParseJson(request.body);
  if (!json.ok()) return ErrorOf(json.status());
  SharedRegion region = {.name = target.region, .key = "", .offset = 0, .bytes = 0};
  const Json* const key = FindMember(*json, "key");
  const Json* const offset = FindMember(*json, "offset");
  const Json* const bytes = FindMember(*json, "byte_size");
  if (key == nullptr || !key->is_string() || bytes == nullptr || !bytes->is_number_unsigned() ||
      (offset != nullptr && !offset->is_number_unsigned())) {
    return Error(400, "a region has a \"key\", a \"byte_size\" and may have an \"offset\"");
  }
  region.key = key->get_ref<const std::string&>();
  region.bytes = bytes->get<uint64_t>();
  if (offset != nullptr) region.offset = offset->get<uint64_t>();
  const Status status = memory_.Register(std::move(region));
  // A name that is taken is the client's mistake.
  if (status.code() == StatusCode::kDeviceBusy) return Error(400, status.message());
  return AnswerOf(status);
}

}  // namespace atollserve

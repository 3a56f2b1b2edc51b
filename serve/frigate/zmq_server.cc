// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/zmq_server.h"

#include <sys/eventfd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/base/file_descriptor.h"
#include "serve/frigate/detector.h"
#include "serve/frigate/exchange.h"
#include "serve/frigate/loaded_models.h"
#include "serve/frigate/work_queue.h"

namespace atollrt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxClients = 1024;    // whose models are remembered; the oldest are forgotten
constexpr size_t kMaxLoads = 4;         // files and names that wait or are loaded for clients
constexpr size_t kMaxQuestions = 4096;  // with which nobody asks for a model any more
constexpr size_t kMaxParts = 8;         // of a message; Frigate's have 2, and the envelope 2
constexpr int kMessagesAtOnce = 32;     // of a socket, before others have their turn

// Names that clients have made up, for a line of a log.
std::string Printable(std::string_view text) {
  std::string printable(text);
  for (char& c : printable) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return printable;
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// ---- Messages -----------------------------------------------------------------------------------

class Message {
 public:
  Message() { zmq_msg_init(&message_); }
  Message(Message&& other) noexcept : Message() { zmq_msg_move(&message_, &other.message_); }
  Message& operator=(Message&& other) noexcept {
    zmq_msg_move(&message_, &other.message_);
    return *this;
  }
  ~Message() { zmq_msg_close(&message_); }

  zmq_msg_t* get() { return &message_; }
  size_t size() { return zmq_msg_size(&message_); }
  std::span<const uint8_t> bytes() {
    return {static_cast<const uint8_t*>(zmq_msg_data(&message_)), size()};
  }
  std::string_view text() { return {static_cast<const char*>(zmq_msg_data(&message_)), size()}; }

 private:
  zmq_msg_t message_;
};

// Where an answer goes.
struct Asker {
  size_t socket = 0;
  std::string identity;  // of the connection, as libzmq has it
  auto operator<=>(const Asker&) const = default;
};

enum class Reason {
  kMalformed,
  kWrongFrame,
  kNoModel,
  kUnknownModel,
  kLate,
  kBusy,
  kDevice,
  kModelRefused,
  kNoEnvelope,
};
constexpr size_t kReasonCount = 9;

constexpr uint64_t kNobody = 0;  // waits for it

struct FrameWork {
  uint64_t id = 0;
  std::shared_ptr<ObjectDetector> detector;
  FrameHead head;
  Message values;
  Clock::time_point deadline;
};

struct ModelWork {
  uint64_t id = kNobody;  // of kRequest: whoever asked for the name waits
  ModelHead::Kind kind = ModelHead::Kind::kRequest;
  std::string name;
  Message file;  // of kData
};

// ---- The server ---------------------------------------------------------------------------------

class Server : public ZmqServer {
 public:
  explicit Server(ZmqServerOptions options) : options_(std::move(options)) {}
  ~Server() override;
  Status Open();

  const std::vector<std::string>& endpoints() const override { return endpoints_; }
  ZmqServerCounts counts() const override;

 private:
  // What is to be answered.
  struct Question {
    Asker asker;
    std::optional<ModelHead::Kind> model;  // nullopt: a frame
    Clock::time_point deadline;
    std::string name = {};  // of the model
  };
  // What a worker, or the loader, has for one.
  struct Outcome {
    uint64_t id = kNobody;
    std::string model;  // its name, of a ModelWork
    Status status;
    DetectionRows rows = {};                // of a frame
    std::vector<std::string> known_models;  // of a ModelWork
  };
  struct Client {
    std::string model;  // its name; "": it asked for none
    uint64_t last_use = 0;
    bool waits = false;  // for an answer
  };

  void Serve();
  void Take(size_t socket);
  void TakeBody(const Asker& asker, std::span<Message> body);
  void TakeModel(const Asker& asker, const ModelHead& head, std::span<Message> body);
  void TakeFrame(const Asker& asker, const FrameHead& head, Message values);
  std::shared_ptr<ObjectDetector> DetectorFor(Client* client, bool* unknown);
  void Finish(Outcome outcome);
  void Answer(const Question& question, const Outcome& outcome);
  void AnswerLate();
  void AnswerModel(const Question& question, const Status& status);
  void AnswerRows(const Asker& asker, const DetectionRows& rows);
  void AnswerZeros(const Asker& asker, std::atomic<uint64_t>* count);
  void Send(const Asker& asker, std::initializer_list<std::string_view> parts);
  void LoadByName(const std::string& name, bool for_client);
  Client& ClientOf(const Asker& asker);
  uint64_t Ask(Question question);

  void Detect();
  void LoadModels();
  Status StoreAndLoad(ModelWork* work);
  Status Load(const StoredModel& stored);
  std::vector<std::string> KnownModels() const;
  void Deliver(Outcome outcome);
  void Complain(Reason reason, const std::string& sentence);
  void Say(const std::string& line) const {
    if (options_.log) options_.log(line);
  }

  const ZmqServerOptions options_;
  void* context_ = nullptr;
  void* gate_ = nullptr;        // as sockets_; null: no keys are asked for
  std::vector<void*> sockets_;  // once it runs, of the thread of Serve alone
  std::vector<std::string> endpoints_;
  FileDescriptor wake_;
  std::shared_ptr<ObjectDetector> default_model_;
  std::optional<ModelStore> store_;  // of the thread of LoadModels
  LoadedModels loaded_;

  // Of the thread of Serve.
  std::map<Asker, Client> clients_;
  std::map<uint64_t, Question> questions_;
  std::vector<std::string> known_models_;
  // Names that models_ has, or the loader, and whether a client was the first to ask. Clients that
  // give up and ask again, as Frigate's do after 200 ms, wait for the same.
  std::map<std::string, bool> loading_;
  // Those and files of clients: also those whose question was answered when that took too long.
  size_t loads_ = 0;
  uint64_t latest_id_ = kNobody;
  uint64_t uses_ = 0;

  WorkQueue<FrameWork> frames_;
  WorkQueue<ModelWork> models_;
  std::mutex outcomes_mutex_;
  std::vector<Outcome> outcomes_;
  std::atomic<bool> stopping_ = false;
  std::array<std::atomic<uint64_t>, kReasonCount> complaints_ = {};
  struct {
    std::atomic<uint64_t> frames, detected, late, failed, unanswered, uploads, refused, dropped;
  } counts_ = {};
  std::vector<std::thread> threads_;
};

Server::~Server() {
  stopping_ = true;
  frames_.Close();
  models_.Close();
  if (wake_.get() >= 0) eventfd_write(wake_.get(), 1);
  for (std::thread& thread : threads_) thread.join();
  for (void* socket : sockets_) zmq_close(socket);
  if (gate_ != nullptr) zmq_close(gate_);
  if (context_ != nullptr) zmq_ctx_term(context_);
}

ZmqServerCounts Server::counts() const {
  return {counts_.frames,     counts_.detected, counts_.late,    counts_.failed,
          counts_.unanswered, counts_.uploads,  counts_.refused, counts_.dropped};
}

Status Server::Open() {
  if (options_.endpoints.empty()) return InvalidArgument("a ZMQ server needs an endpoint");
  if (options_.budget.count() < 1 || options_.budget.count() > 60'000) {
    return InvalidArgument("a budget of %lld ms is not 1 to 60000",
                           static_cast<long long>(options_.budget.count()));
  }
  if (options_.frames < 1 || options_.loading_time.count() < 1) {
    return InvalidArgument("a ZMQ server needs room for a frame, and time for a model");
  }
  if (options_.default_model.empty() && options_.folder.empty()) {
    return InvalidArgument(
        "a ZMQ server has neither a model nor a folder for those that clients send; give it one");
  }
  for (const std::string& endpoint : options_.endpoints) {
    ATOLL_ASSIGN_OR_RETURN(const bool local, IsLocalEndpoint(endpoint));
    if (!local && !options_.keys && options_.exposure == ZmqExposure::kLocalOnly) {
      return Status(
          StatusCode::kPermissionDenied,
          "'" + endpoint +
              "' can be reached from other computers, and Frigate by itself can neither encrypt "
              "nor identify itself; use ipc:// or tcp://127.0.0.1, give keys (--zmq-key, "
              "--zmq-clients) to clients that have some, or say --insecure");
    }
  }
  if (!options_.default_model.empty()) {
    auto detector = ObjectDetector::Load(options_.default_model, options_.device, options_.places);
    if (!detector.ok()) {
      return std::move(detector).status().WithContext("model '" + options_.default_model + "'");
    }
    if ((*detector)->channels() != 3) {
      return Unsupported("model '%s' takes gray pictures, and Frigate sends colour",
                         options_.default_model.c_str());
    }
    default_model_ = *std::move(detector);
  }
  if (!options_.folder.empty()) {
    ATOLL_ASSIGN_OR_RETURN(store_, ModelStore::Open(options_.folder, options_.limits));
    known_models_ = KnownModels();
  }
  wake_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  context_ = zmq_ctx_new();
  if (wake_.get() < 0 || context_ == nullptr) {
    return Status(StatusCode::kResourceExhausted, "no file descriptors are left for ZeroMQ");
  }
  const auto most = std::max<uint64_t>(options_.limits.bytes_per_model, uint64_t{64} << 20);
  if (options_.keys) {
    ATOLL_ASSIGN_OR_RETURN(gate_, BindGate(context_));
  }
  const CurveKeys* const keys = options_.keys ? &*options_.keys : nullptr;
  for (const std::string& endpoint : options_.endpoints) {
    ATOLL_ASSIGN_OR_RETURN(const BoundSocket bound, BindRouter(context_, endpoint, most, keys));
    sockets_.push_back(bound.socket);
    endpoints_.push_back(bound.endpoint);
  }
  // Those that were in use before, the latest one last, so that it is the last to go.
  for (size_t i = std::min(known_models_.size(), LoadedModels::kMost); i-- > 0;)
    LoadByName(known_models_[i], /*for_client=*/false);
  threads_.emplace_back([this] { Serve(); });
  threads_.emplace_back([this] { LoadModels(); });
  for (int i = 0; i < options_.places; ++i) threads_.emplace_back([this] { Detect(); });
  return Status();
}

// ---- The thread of the sockets ------------------------------------------------------------------

void Server::Serve() {
  std::vector<zmq_pollitem_t> items;
  for (void* socket : sockets_) items.push_back({socket, 0, ZMQ_POLLIN, 0});
  if (gate_ != nullptr) items.push_back({gate_, 0, ZMQ_POLLIN, 0});
  items.push_back({nullptr, wake_.get(), ZMQ_POLLIN, 0});
  while (!stopping_) {
    long timeout_ms = -1;
    for (const auto& [id, question] : questions_) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(question.deadline - Clock::now()).count();
      const long left_ms = std::max<long>(0, static_cast<long>(left));
      timeout_ms = timeout_ms < 0 ? left_ms : std::min(timeout_ms, left_ms);
    }
    if (zmq_poll(items.data(), static_cast<int>(items.size()), timeout_ms) < 0 &&
        zmq_errno() != EINTR) {
      return;  // the context is gone
    }
    if (items.back().revents != 0) {
      eventfd_t wakes = 0;
      eventfd_read(wake_.get(), &wakes);
      std::vector<Outcome> outcomes;
      {
        const std::lock_guard lock(outcomes_mutex_);
        outcomes.swap(outcomes_);
      }
      for (Outcome& outcome : outcomes) Finish(std::move(outcome));
    }
    for (size_t i = 0; i < sockets_.size(); ++i) {
      if (items[i].revents != 0) Take(i);
    }
    for (int i = 0; gate_ != nullptr && i < kMessagesAtOnce; ++i) {
      if (!AnswerAtGate(gate_, *options_.keys)) break;
    }
    AnswerLate();
  }
}

void Server::Take(size_t socket) {
  for (int taken = 0; taken < kMessagesAtOnce; ++taken) {
    std::vector<Message> parts;
    bool too_many = false;
    int more = 1;
    while (more != 0) {
      Message part;
      if (zmq_msg_recv(part.get(), sockets_[socket], ZMQ_DONTWAIT) < 0) return;
      more = zmq_msg_more(part.get());
      if (parts.size() < kMaxParts) {
        parts.push_back(std::move(part));
      } else {
        too_many = true;
      }
    }
    // The identity, the empty part that REQ puts before what it says, and that.
    if (parts.size() < 3 || parts[1].size() != 0) {
      ++counts_.dropped;
      Complain(Reason::kNoEnvelope, "a message that no REQ socket sends; it has no answer");
      continue;
    }
    const Asker asker{socket, std::string(parts[0].text())};
    const std::span<Message> body = std::span(parts).subspan(2);
    if (ClientOf(asker).waits) {
      // REQ does not ask again before it has an answer.
      ++counts_.frames;
      AnswerZeros(asker, &counts_.failed);
      Complain(Reason::kBusy, "a client asks before it has its answer; it gets zeros");
    } else if (too_many) {
      ++counts_.frames;
      AnswerZeros(asker, &counts_.failed);
      Complain(Reason::kMalformed, "a message of more than 6 parts");
    } else {
      TakeBody(asker, body);
    }
  }
}

void Server::TakeBody(const Asker& asker, std::span<Message> body) {
  Result<MessageHead> head = ParseMessageHead(body[0].text());
  if (head.ok() && head->model) {
    TakeModel(asker, *head->model, body);
    return;
  }
  if (!head.ok()) {
    Complain(Reason::kMalformed, head.status().message());
    if (const auto kind = KindOfModelHead(body[0].text())) {
      if (*kind == ModelHead::Kind::kData) ++counts_.refused;
      AnswerModel({asker, kind, {}}, head.status());
      return;
    }
  }
  ++counts_.frames;
  if (!head.ok() || body.size() != 2) {
    AnswerZeros(asker, &counts_.failed);
    if (head.ok()) {
      Complain(Reason::kMalformed,
               Format("a frame in %zu parts; it has two, a head and values", body.size()));
    }
    return;
  }
  TakeFrame(asker, *head->frame, std::move(body[1]));
}

void Server::TakeModel(const Asker& asker, const ModelHead& head, std::span<Message> body) {
  const size_t parts = head.kind == ModelHead::Kind::kData ? 2 : 1;
  Question question{asker, head.kind, Clock::now() + options_.loading_time, head.name};
  const auto refuse = [&](const Status& status) {
    if (head.kind == ModelHead::Kind::kData) ++counts_.refused;
    Complain(Reason::kModelRefused, status.message());
    AnswerModel(question, status);
  };
  if (body.size() != parts) {
    return refuse(InvalidArgument("a message about model '%s' has %zu parts rather than %zu",
                                  Printable(head.name).c_str(), body.size(), parts));
  }
  if (default_model_ != nullptr && head.name == BaseName(options_.default_model)) {
    ClientOf(asker).model.clear();
    return AnswerModel(question, Status());
  }
  if (!store_) {
    return refuse(Status(StatusCode::kUnsupported,
                         "model '" + Printable(head.name) +
                             "' is not the one that is served, and there is no folder for others"));
  }
  const bool is_file = head.kind == ModelHead::Kind::kData;
  if (loads_ >= kMaxLoads && (is_file || !loading_.contains(head.name))) {
    return refuse(Status(StatusCode::kResourceExhausted,
                         Format("%zu models are being loaded already", kMaxLoads)));
  }
  if (questions_.size() >= kMaxQuestions) {
    return refuse(Status(StatusCode::kResourceExhausted,
                         Format("%zu clients wait for answers already", kMaxQuestions)));
  }
  const uint64_t id = Ask(std::move(question));
  if (!is_file) return LoadByName(head.name, /*for_client=*/true);
  ++loads_;
  models_.Push({id, head.kind, head.name, std::move(body[1])});
}

void Server::TakeFrame(const Asker& asker, const FrameHead& head, Message values) {
  bool unknown = false;
  const std::shared_ptr<ObjectDetector> detector = DetectorFor(&ClientOf(asker), &unknown);
  if (unknown) {
    ++counts_.unanswered;
    return Complain(Reason::kUnknownModel,
                    "a client that has not asked for one of several models gets no answer, so that "
                    "it does; one that never asks needs a model that is given at the start");
  }
  if (detector == nullptr) {
    AnswerZeros(asker, &counts_.failed);
    return Complain(
        Reason::kNoModel,
        "a frame, and no model that is loaded; Frigate sends one when it connects, older "
        "versions need one that is given at the start");
  }
  const Status fits = CheckFrame(head, values.size(), detector->width(), detector->height());
  if (!fits.ok()) {
    AnswerZeros(asker, &counts_.failed);
    return Complain(Reason::kWrongFrame, fits.message());
  }
  FrameWork work;
  work.deadline = Clock::now() + options_.budget;
  work.detector = detector;
  work.head = head;
  work.values = std::move(values);
  work.id = Ask({asker, std::nullopt, work.deadline});
  const uint64_t id = work.id;
  if (frames_.PushUnlessFull(std::move(work), options_.frames)) return;
  Outcome refused;
  refused.id = id;
  refused.status = ResourceExhausted("%zu frames wait already", options_.frames);
  Complain(Reason::kBusy, refused.status.message());
  Finish(std::move(refused));
}

std::shared_ptr<ObjectDetector> Server::DetectorFor(Client* client, bool* unknown) {
  if (client->model.empty()) {
    if (default_model_ != nullptr) return default_model_;
    *unknown = known_models_.size() > 1;
    if (known_models_.size() != 1) return nullptr;
    client->model = known_models_[0];
  }
  std::shared_ptr<ObjectDetector> detector = loaded_.Find(client->model);
  // It gave way to others, or has not been loaded yet after a restart.
  if (detector == nullptr) LoadByName(client->model, /*for_client=*/false);
  return detector;
}

void Server::LoadByName(const std::string& name, bool for_client) {
  if (!loading_.emplace(name, for_client).second) return;
  if (for_client) ++loads_;
  models_.Push({kNobody, ModelHead::Kind::kRequest, name, {}});
}

uint64_t Server::Ask(Question question) {
  ClientOf(question.asker).waits = true;
  questions_.emplace(++latest_id_, std::move(question));
  return latest_id_;
}

Server::Client& Server::ClientOf(const Asker& asker) {
  auto found = clients_.find(asker);
  if (found == clients_.end()) {
    if (clients_.size() >= kMaxClients) {
      // Connections end without a word; the one that was silent for longest probably has.
      const auto oldest =
          std::min_element(clients_.begin(), clients_.end(), [](const auto& a, const auto& b) {
            return std::pair(a.second.waits, a.second.last_use) <
                   std::pair(b.second.waits, b.second.last_use);
          });
      clients_.erase(oldest);
    }
    found = clients_.emplace(asker, Client()).first;
  }
  found->second.last_use = ++uses_;
  return found->second;
}

void Server::Finish(Outcome outcome) {
  if (!outcome.model.empty()) {
    known_models_ = std::move(outcome.known_models);
    if (outcome.id == kNobody) {
      if (loading_.extract(outcome.model).mapped()) --loads_;
      std::erase_if(questions_, [&](const auto& entry) {
        const Question& question = entry.second;
        const bool waits =
            question.model == ModelHead::Kind::kRequest && question.name == outcome.model;
        if (waits) Answer(question, outcome);
        return waits;
      });
      return;
    }
    --loads_;
  }
  auto question = questions_.extract(outcome.id);
  if (!question.empty()) Answer(question.mapped(), outcome);  // if that was not too late
}

void Server::Answer(const Question& question, const Outcome& outcome) {
  Client& client = ClientOf(question.asker);
  client.waits = false;
  if (question.model) {
    if (outcome.status.ok()) client.model = outcome.model;
    AnswerModel(question, outcome.status);
  } else if (outcome.status.ok()) {
    ++counts_.detected;
    AnswerRows(question.asker, outcome.rows);
  } else {
    const bool late = outcome.status.code() == StatusCode::kTimeout;
    AnswerZeros(question.asker, late ? &counts_.late : &counts_.failed);
  }
}

void Server::AnswerLate() {
  const Clock::time_point now = Clock::now();
  for (auto next = questions_.begin(); next != questions_.end();) {
    const auto asked = next++;
    if (asked->second.deadline > now) continue;
    const Question question = std::move(asked->second);
    questions_.erase(asked);
    ClientOf(question.asker).waits = false;
    if (question.model) {
      AnswerModel(question, Status(StatusCode::kTimeout, "loading takes too long"));
    } else {
      AnswerZeros(question.asker, &counts_.late);
      Complain(Reason::kLate,
               Format("a frame had no result after %lld ms; a smaller model or a faster device is "
                      "needed, or fewer cameras",
                      static_cast<long long>(options_.budget.count())));
    }
  }
}

// Without the model, Frigate sends it; with one that is there but cannot be loaded, it would never
// try again.
void Server::AnswerModel(const Question& question, const Status& status) {
  const bool good = status.ok();
  Send(question.asker, {question.model == ModelHead::Kind::kData ? ModelDataAnswer(good, good)
                                                                 : ModelRequestAnswer(good, good)});
}

void Server::AnswerRows(const Asker& asker, const DetectionRows& rows) {
  const std::string_view bytes(reinterpret_cast<const char*>(rows.data()), sizeof(rows));
  if (options_.answer_form == ZmqAnswerForm::kHeadFirst) {
    Send(asker, {RowsHead(), bytes});
  } else {
    Send(asker, {bytes});
  }
}

void Server::AnswerZeros(const Asker& asker, std::atomic<uint64_t>* count) {
  ++*count;
  AnswerRows(asker, {});
}

void Server::Send(const Asker& asker, std::initializer_list<std::string_view> parts) {
  void* const socket = sockets_[asker.socket];
  // To whoever has gone nothing is sent, which is no error.
  zmq_send(socket, asker.identity.data(), asker.identity.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT);
  zmq_send(socket, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
  size_t left = parts.size();
  for (const std::string_view part : parts) {
    zmq_send(socket, part.data(), part.size(), (--left > 0 ? ZMQ_SNDMORE : 0) | ZMQ_DONTWAIT);
  }
}

void Server::Complain(Reason reason, const std::string& sentence) {
  if (complaints_[static_cast<size_t>(reason)]++ > 0) return;
  Say("ZMQ: " + sentence + " (said once, counted from now on)");
}

// ---- The others ---------------------------------------------------------------------------------

void Server::Deliver(Outcome outcome) {
  {
    const std::lock_guard lock(outcomes_mutex_);
    outcomes_.push_back(std::move(outcome));
  }
  eventfd_write(wake_.get(), 1);
}

void Server::Detect() {
  Image image;
  while (std::optional<FrameWork> work = frames_.Pop()) {
    Outcome outcome;
    outcome.id = work->id;
    if (Clock::now() >= work->deadline) continue;  // zeros have been sent, or will be
    outcome.status = FrameToImage(work->head, work->values.bytes(), work->detector->width(),
                                  work->detector->height(), &image);
    if (!outcome.status.ok()) {
      Complain(Reason::kWrongFrame, outcome.status.message());
    } else {
      auto found = work->detector->Detect(image, ObjectDetector::kAnyScore, work->deadline,
                                          YoloHeadOf(work->head.model_type));
      if (found.ok()) {
        outcome.rows = RowsOf(*found);
      } else {
        outcome.status = std::move(found).status();
        Complain(Reason::kDevice, outcome.status.message());
      }
    }
    Deliver(std::move(outcome));
  }
}

void Server::LoadModels() {
  while (std::optional<ModelWork> work = models_.Pop()) {
    Outcome outcome;
    outcome.id = work->id;
    outcome.model = work->name;
    outcome.status = StoreAndLoad(&*work);
    outcome.known_models = KnownModels();
    const bool is_file = work->kind == ModelHead::Kind::kData;
    if (is_file) ++(outcome.status.ok() ? counts_.uploads : counts_.refused);
    // That a model is not here yet is how it begins.
    if (!outcome.status.ok() && outcome.status.code() != StatusCode::kNotFound) {
      Complain(Reason::kModelRefused,
               "model '" + Printable(work->name) + "': " + outcome.status.message());
    }
    Deliver(std::move(outcome));
  }
}

Status Server::StoreAndLoad(ModelWork* work) {
  StoredModel stored;
  if (work->kind == ModelHead::Kind::kData) {
    ATOLL_ASSIGN_OR_RETURN(stored, store_->Save(work->name, work->file.bytes()));
  } else {
    const std::optional<StoredModel> found = store_->Find(work->name);
    if (!found) {
      return Status(StatusCode::kNotFound, "there is no model '" + Printable(work->name) + "'");
    }
    stored = *found;
  }
  Status status = Load(stored);
  // What cannot be loaded is not kept.
  if (!status.ok()) (void)store_->Forget(work->name).ok();
  return status;
}

Status Server::Load(const StoredModel& stored) {
  std::shared_ptr<ObjectDetector> detector = loaded_.FindBytes(stored.sha256);
  if (detector == nullptr) {
    auto loaded = ObjectDetector::Load(store_->PathOf(stored), options_.device, options_.places);
    if (!loaded.ok()) return std::move(loaded).status();
    detector = *std::move(loaded);
    Say(Format("ZMQ: model '%s', %llu bytes, for pictures of %d x %d",
               Printable(stored.name).c_str(), static_cast<unsigned long long>(stored.bytes),
               detector->width(), detector->height()));
  }
  if (detector->channels() != 3) {
    return Unsupported("it takes gray pictures, and Frigate sends colour");
  }
  loaded_.Insert(stored, std::move(detector));
  return Status();
}

std::vector<std::string> Server::KnownModels() const {
  std::vector<std::string> names;
  for (const StoredModel& model : store_->models()) names.push_back(model.name);
  return names;
}

}  // namespace

Result<std::unique_ptr<ZmqServer>> ZmqServer::Start(ZmqServerOptions options) {
  auto server = std::make_unique<Server>(std::move(options));
  ATOLL_RETURN_IF_ERROR(server->Open());
  return std::unique_ptr<ZmqServer>(std::move(server));
}

}  // namespace atollrt

// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/service.h"

#include <ctime>
#include <utility>

#include "serve/fleet/subscription.h"
#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

using atollrt::Result;
using Json = nlohmann::json;

std::string Now() {
  char text[32] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  if (gmtime_r(&now, &utc) != nullptr)
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

class Answerer : public Service {
 public:
  Answerer(const FleetConnection* connection, ServiceOptions options)
      : connection_(connection), options_(std::move(options)), started_(Now()) {}

  atollrt::Status Listen() {
    for (const char* verb : {"PING", "INFO", "STATS"}) {
      const std::string all = std::string("$SRV.") + verb;
      for (const std::string& subject :
           {all, all + "." + options_.name, all + "." + options_.name + "." + options_.id}) {
        ATOLL_ASSIGN_OR_RETURN(
            std::unique_ptr<Subscription> made,
            Subscription::Start(connection_, subject, "",
                                [this, verb](natsMsg* message) { Answer(verb, message); }));
        subscriptions_.push_back(std::move(made));
      }
    }
    return {};
  }

 private:
  void Answer(const std::string& verb, natsMsg* message) const {
    const std::string_view reply = ReplySubjectOf(message);
    if (reply.empty()) return;
    Json json = {{"name", options_.name},
                 {"id", options_.id},
                 {"version", options_.version},
                 {"metadata", Json::object()}};
    if (verb == "PING") {
      json["type"] = "io.nats.micro.v1.ping_response";
    } else if (verb == "INFO") {
      json["type"] = "io.nats.micro.v1.info_response";
      json["description"] = options_.description;
    } else {
      json["type"] = "io.nats.micro.v1.stats_response";
      json["started"] = started_;
    }
    if (verb != "PING") {
      Json endpoints = Json::array();
      for (const ServiceEndpoint& endpoint : options_.endpoints()) {
        Json one = {{"name", endpoint.name},
                    {"subject", endpoint.subject},
                    {"queue_group", endpoint.queue}};
        if (verb == "INFO") {
          one["metadata"] = Json::object();
        } else {
          one["num_requests"] = endpoint.requests;
          one["num_errors"] = endpoint.errors;
          one["last_error"] = endpoint.last_error;
          one["processing_time"] = endpoint.processing_ns;
          one["average_processing_time"] =
              endpoint.requests == 0 ? 0 : endpoint.processing_ns / endpoint.requests;
        }
        endpoints.push_back(std::move(one));
      }
      json["endpoints"] = std::move(endpoints);
    }
    (void)connection_->Publish(std::string(reply), {}, DumpJson(json));
  }

  const FleetConnection* const connection_;
  const ServiceOptions options_;
  const std::string started_;
  std::vector<std::unique_ptr<Subscription>> subscriptions_;
};

}  // namespace

Result<std::unique_ptr<Service>> Service::Start(const FleetConnection* connection,
                                                ServiceOptions options) {
  auto service = std::make_unique<Answerer>(connection, std::move(options));
  ATOLL_RETURN_IF_ERROR(service->Listen());
  return std::unique_ptr<Service>(std::move(service));
}

}  // namespace atollserve

// SPDX-License-Identifier: Apache-2.0
//
// A client of the Open Inference Protocol, version 2, over HTTP
// (kserve/open-inference-protocol, specification/protocol/inference_rest.md), with the extension
// for binary tensors (triton-inference-server/server, docs/protocol/extension_binary_data.md): a
// request's tensors follow a JSON object, whose length is a header of its own; 0 there means that
// the body is the only input, whose name and shape are the model's. Servers are hostile here: what
// they say is bounded and checked.
#include <curl/curl.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/load_target.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/oip_tensors.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

// libcurl, which is loaded when a server is the target for the first time: it brings two dozen
// libraries along, which every command would have to start with.
struct CurlFunctions {
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_escape) easy_escape = nullptr;
  decltype(&curl_free) free = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_global_init) global_init = nullptr;
};
const CurlFunctions& Curl() {
  static const CurlFunctions functions = [] {
    CurlFunctions found;
    void* const library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      Fail(ExitCode::kFailure, "a server as a target needs libcurl ({}); install libcurl4",
           dlerror());
    }
    const auto find = [&]<typename Function>(const char* name, Function* function) {
      *function = reinterpret_cast<Function>(dlsym(library, name));
      if (*function == nullptr) {
        Fail(ExitCode::kFailure, "libcurl has no {}; install a newer libcurl4", name);
      }
    };
    find("curl_easy_init", &found.easy_init);
    find("curl_easy_setopt", &found.easy_setopt);
    find("curl_slist_free_all", &found.slist_free_all);
    find("curl_easy_cleanup", &found.easy_cleanup);
    find("curl_easy_escape", &found.easy_escape);
    find("curl_free", &found.free);
    find("curl_slist_append", &found.slist_append);
    find("curl_easy_perform", &found.easy_perform);
    find("curl_easy_strerror", &found.easy_strerror);
    find("curl_easy_getinfo", &found.easy_getinfo);
    find("curl_global_init", &found.global_init);
    return found;
  }();
  return functions;
}

constexpr long kConnectTimeoutMs = 5'000;
constexpr long kTimeoutMs = 60'000;
constexpr size_t kMaxDescription = size_t{4} << 20;  // of a model or a list of models
constexpr size_t kMaxAnswer = size_t{256} << 20;
constexpr int kMaxDepth = 64;
constexpr char kHeadLength[] = "Inference-Header-Content-Length";

// nullopt: this is no JSON, or too deep for it.
std::optional<Json> ParseJson(std::string_view text) {
  const auto watch = [](int depth, Json::parse_event_t, Json&) { return depth <= kMaxDepth; };
  Json json = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (json.is_discarded()) return std::nullopt;
  return json;
}

struct Answer {
  long status = 0;
  std::string body;
  size_t head_bytes = 0;  // of the JSON in front of binary tensors; 0: there are none
  std::string problem;    // why there is no answer; empty: there is one
};

// What a server says of an error, in one line.
std::string ReasonOf(const Answer& answer) {
  if (!answer.problem.empty()) return answer.problem;
  std::string text = fmt::format("HTTP status {}", answer.status);
  if (const auto json = ParseJson(answer.body);
      json && json->is_object() && json->contains("error") && (*json)["error"].is_string()) {
    text += ", '" + (*json)["error"].get<std::string>().substr(0, 300) + "'";
  }
  return Printable(text);
}

// One connection that is kept. One thread at a time.
class Connection {
 public:
  Connection(const OipAddress& address, const OipCredentials& credentials)
      : curl_(Curl().easy_init()),
        base_(fmt::format("http{}://{}:{}", address.tls ? "s" : "", address.host, address.port)),
        token_(credentials.token) {
    if (curl_ == nullptr) Fail(ExitCode::kFailure, "out of memory; use fewer --streams");
    Curl().easy_setopt(curl_, CURLOPT_NOSIGNAL, 1L);
    Curl().easy_setopt(curl_, CURLOPT_NOPROXY, "*");
    Curl().easy_setopt(curl_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    Curl().easy_setopt(curl_, CURLOPT_CONNECTTIMEOUT_MS, kConnectTimeoutMs);
    Curl().easy_setopt(curl_, CURLOPT_TIMEOUT_MS, kTimeoutMs);
    Curl().easy_setopt(curl_, CURLOPT_MAXCONNECTS, 1L);
    Curl().easy_setopt(curl_, CURLOPT_WRITEFUNCTION, &Connection::TakeBody);
    Curl().easy_setopt(curl_, CURLOPT_WRITEDATA, this);
    Curl().easy_setopt(curl_, CURLOPT_HEADERFUNCTION, &Connection::TakeHeader);
    Curl().easy_setopt(curl_, CURLOPT_HEADERDATA, this);
    Curl().easy_setopt(curl_, CURLOPT_NOPROGRESS, 0L);
    Curl().easy_setopt(curl_, CURLOPT_XFERINFOFUNCTION, &Connection::EndIfStopped);
    Curl().easy_setopt(curl_, CURLOPT_ERRORBUFFER, error_);
    if (!credentials.ca_file.empty()) {
      Curl().easy_setopt(curl_, CURLOPT_CAINFO, credentials.ca_file.c_str());
    }
  }
  ~Connection() {
    Curl().slist_free_all(headers_);
    Curl().easy_cleanup(curl_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // `name` as part of a path.
  std::string Escape(const std::string& name) {
    char* const escaped = Curl().easy_escape(curl_, name.data(), static_cast<int>(name.size()));
    std::string text = escaped == nullptr ? "" : escaped;
    Curl().free(escaped);
    return text;
  }

  const Answer& Get(const std::string& path) {
    Curl().easy_setopt(curl_, CURLOPT_HTTPGET, 1L);
    SetHeaders({});
    return Perform(path, kMaxDescription);
  }
  // `body` must stay until the next call.
  void PreparePost(const std::string& path, const std::vector<std::string>& headers,
                   std::string_view body) {
    Curl().easy_setopt(curl_, CURLOPT_POST, 1L);
    Curl().easy_setopt(curl_, CURLOPT_POSTFIELDS, body.data());
    Curl().easy_setopt(curl_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    SetHeaders(headers);
    path_ = path;
  }
  const Answer& Post(size_t answer_max) { return Perform(path_, answer_max); }

 private:
  void SetHeaders(const std::vector<std::string>& headers) {
    Curl().slist_free_all(headers_);
    headers_ = Curl().slist_append(nullptr, "Expect:");  // never wait for 100 Continue
    if (!token_.empty()) {
      headers_ = Curl().slist_append(headers_, ("Authorization: Bearer " + token_).c_str());
    }
    for (const std::string& header : headers) {
      headers_ = Curl().slist_append(headers_, header.c_str());
    }
    Curl().easy_setopt(curl_, CURLOPT_HTTPHEADER, headers_);
  }

  const Answer& Perform(const std::string& path, size_t answer_max) {
    answer_max_ = answer_max;
    answer_.body.clear();
    answer_.head_bytes = 0;
    answer_.problem.clear();
    answer_.status = 0;
    error_[0] = '\0';
    Curl().easy_setopt(curl_, CURLOPT_URL, (base_ + path).c_str());
    const CURLcode code = Curl().easy_perform(curl_);
    if (code != CURLE_OK) {
      answer_.problem = too_large_
                            ? fmt::format("the answer is larger than {} bytes", answer_max)
                            : Printable(error_[0] != '\0' ? error_ : Curl().easy_strerror(code));
    }
    too_large_ = false;
    Curl().easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &answer_.status);
    return answer_;
  }

  // Called about once in a second, too, while a server keeps silent.
  static int EndIfStopped(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) noexcept {
    return StopWanted() ? 1 : 0;
  }
  static size_t TakeBody(char* data, size_t, size_t size, void* self) noexcept {
    auto* connection = static_cast<Connection*>(self);
    if (size > connection->answer_max_ - connection->answer_.body.size()) {
      connection->too_large_ = true;
      return 0;
    }
    connection->answer_.body.append(data, size);
    return size;
  }
  static size_t TakeHeader(char* data, size_t, size_t size, void* self) noexcept {
    auto* connection = static_cast<Connection*>(self);
    const std::string_view line(data, size);
    constexpr std::string_view kName(kHeadLength);
    const bool is_it =
        line.size() > kName.size() && line[kName.size()] == ':' &&
        std::equal(kName.begin(), kName.end(), line.begin(), [](unsigned char a, unsigned char b) {
          return std::tolower(a) == std::tolower(b);
        });
    if (is_it) {
      std::string_view value = line.substr(kName.size() + 1);
      value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
      value = value.substr(0, value.find_first_of(" \t\r\n"));
      connection->answer_.head_bytes = ParseNumber<size_t>(value).value_or(0);
    }
    return size;
  }

  CURL* const curl_;
  const std::string base_;
  const std::string token_;
  curl_slist* headers_ = nullptr;
  std::string path_;
  Answer answer_;
  size_t answer_max_ = 0;
  bool too_large_ = false;
  char error_[CURL_ERROR_SIZE] = {};
};

class OipStream : public Stream {
 public:
  OipStream(const OipAddress& address, const OipCredentials& credentials, const std::string& model,
            std::vector<OipTensor> inputs)
      : connection_(address, credentials), inputs_(std::move(inputs)) {
    path_ = "/v2/models/" + connection_.Escape(model) + "/infer";
  }

  void SetInputs(const Inputs& inputs) override {
    std::vector<std::string> headers = {"Content-Type: application/octet-stream"};
    if (inputs_.size() == 1) {
      headers.push_back(fmt::format("{}: 0", kHeadLength));
      const auto* bytes = reinterpret_cast<const char*>(inputs[0].data());
      connection_.PreparePost(path_, headers, {bytes, inputs[0].size()});
      return;
    }
    Json head = {{"inputs", Json::array()}, {"parameters", {{"binary_data_output", true}}}};
    for (size_t i = 0; i < inputs_.size(); ++i) {
      head["inputs"].push_back({{"name", inputs_[i].name},
                                {"datatype", inputs_[i].datatype->name},
                                {"shape", inputs_[i].shape},
                                {"parameters", {{"binary_data_size", inputs[i].size()}}}});
    }
    body_ = JsonText(head);
    headers.push_back(fmt::format("{}: {}", kHeadLength, body_.size()));
    for (const auto& bytes : inputs) {
      body_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    connection_.PreparePost(path_, headers, body_);
  }

  bool Run() override {
    answer_ = &connection_.Post(kMaxAnswer);
    return answer_->problem.empty() && answer_->status == 200;
  }
  std::string failure() const override { return ReasonOf(*answer_); }

  // Looked for only when it is asked for, which is never while times are measured.
  OutputBytes output() const override {
    const std::string_view body = answer_->body;
    const auto fail = [&]() -> OutputBytes {
      Fail(ExitCode::kFailure,
           "the server's answer has no first output in binary form, of a type and size that are "
           "known; check the server with 'curl'");
    };
    if (answer_->head_bytes == 0 || answer_->head_bytes > body.size()) return fail();
    const auto head = ParseJson(body.substr(0, answer_->head_bytes));
    if (!head || !head->is_object() || !head->contains("outputs") ||
        !(*head)["outputs"].is_array() || (*head)["outputs"].empty()) {
      return fail();
    }
    const Json& output = (*head)["outputs"][0];
    if (!output.is_object() || !output.contains("datatype") || !output["datatype"].is_string() ||
        !output.contains("parameters") || !output["parameters"].is_object() ||
        !output["parameters"].contains("binary_data_size") ||
        !output["parameters"]["binary_data_size"].is_number_unsigned()) {
      return fail();
    }
    const OipDatatype* datatype = FindOipDatatype(output["datatype"].get<std::string>());
    const auto size = output["parameters"]["binary_data_size"].get<uint64_t>();
    if (datatype == nullptr || size > body.size() - answer_->head_bytes) return fail();
    const auto* bytes = reinterpret_cast<const uint8_t*>(body.data()) + answer_->head_bytes;
    return {datatype->type, {bytes, static_cast<size_t>(size)}};
  }

 private:
  Connection connection_;
  const std::vector<OipTensor> inputs_;
  std::string path_;
  std::string body_;
  const Answer* answer_ = nullptr;
};

// The name of the only model of a server.
std::string FindModel(Connection* connection, const OipAddress& address) {
  connection->PreparePost("/v2/repository/index", {"Content-Type: application/json"}, "{}");
  const Answer& answer = connection->Post(kMaxDescription);
  std::vector<std::string> names;
  if (answer.problem.empty() && answer.status == 200) {
    const auto list = ParseJson(answer.body);
    for (const Json& model : list && list->is_array() ? *list : Json::array()) {
      if (!model.is_object() || !model.contains("name") || !model["name"].is_string()) continue;
      names.push_back(Printable(model["name"].get<std::string>()));
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
  }
  if (names.size() == 1) return names[0];
  std::string known = "";
  if (names.size() > 1) {
    names.resize(std::min<size_t>(names.size(), 10));
    known =
        fmt::format(" (it has {}{})", fmt::join(names, ", "), names.size() == 10 ? ", ..." : "");
  }
  Fail(answer.problem.empty() ? ExitCode::kUsage : ExitCode::kNoDevice,
       "cannot tell which model of {} to use{}{}; name it: {}/MODEL", address.text, known,
       names.empty()
           ? fmt::format(": {}", answer.status == 200 ? "it lists none" : ReasonOf(answer))
           : "",
       address.text);
}

}  // namespace

std::unique_ptr<Target> OpenOipTarget(const OipAddress& address, const std::string& model,
                                      const OipCredentials& credentials, size_t streams) {
  CheckCredentials(address, credentials);
  static const CURLcode started = Curl().global_init(CURL_GLOBAL_DEFAULT);
  if (started != CURLE_OK) Fail(ExitCode::kFailure, "cannot start libcurl; install it anew");
  Connection connection(address, credentials);
  std::string name = address.model.empty() ? model : address.model;
  if (name.empty()) name = FindModel(&connection, address);
  const Answer& answer = connection.Get("/v2/models/" + connection.Escape(name));
  if (!answer.problem.empty()) {
    Fail(ExitCode::kNoDevice, "cannot reach {}: {}; start a server there, or give its address",
         address.text, answer.problem);
  }
  const std::string where = fmt::format("the model '{}' at {}", Printable(name), address.text);
  if (answer.status != 200) {
    Fail(ExitCode::kUsage, "cannot use {}: {}; give the name of a model that is served", where,
         ReasonOf(answer));
  }
  const auto description = ParseJson(answer.body);
  std::vector<OipTensor> inputs = ReadOipInputs(description.value_or(Json()), where);
  std::vector<std::unique_ptr<Stream>> all;
  for (size_t i = 0; i < streams; ++i) {
    all.push_back(std::make_unique<OipStream>(address, credentials, name, inputs));
  }
  return std::make_unique<OipTarget>(address.text, name, std::move(inputs), std::move(all));
}

}  // namespace atollcmd

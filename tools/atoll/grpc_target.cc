// SPDX-License-Identifier: Apache-2.0
//
// A server of the Open Inference Protocol over gRPC as a target: by the module libatoll-grpc, which
// is loaded when one is named for the first time.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/oip.h"
#include "atoll/runtime.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/load_target.h"
#include "tools/atoll/oip_tensors.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

constexpr int32_t kGrpcConnectMs = 5'000;
constexpr int32_t kGrpcAnswerMs = 60'000;
constexpr size_t kMaxCaBytes = size_t{1} << 20;

// The module beside libatoll, as libatoll loads it; or one where the system has its libraries.
void* OpenModule() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&AtollVersion), &info) != 0 &&
      info.dli_fname != nullptr) {
    std::string path = info.dli_fname;
    path.replace(path.rfind('/') + 1, path.npos, ATOLL_OIP_MODULE_FILE);
    if (access(path.c_str(), F_OK) == 0) return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  return dlopen(ATOLL_OIP_MODULE_FILE, RTLD_NOW | RTLD_LOCAL);
}

const AtollOipModule& Module() {
  static const AtollOipModule* const module = [] {
    void* const library = OpenModule();
    if (library == nullptr) {
      Fail(ExitCode::kFailure,
           "a server of gRPC as a target needs libatoll-grpc ({}); it is built where libgrpc++-dev "
           "and protobuf-compiler-grpc are installed",
           dlerror());
    }
    const auto function =
        reinterpret_cast<AtollOipModuleFunction>(dlsym(library, ATOLL_OIP_MODULE_SYMBOL));
    if (function == nullptr || function()->interface != ATOLL_OIP_INTERFACE) {
      Fail(ExitCode::kFailure, "{} is of another version; install that of this command",
           ATOLL_OIP_MODULE_FILE);
    }
    return function();
  }();
  return *module;
}

// What a function of the module says, if it does not succeed.
class Sentence {
 public:
  char* data() { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  std::string text() const { return Printable(bytes_.data()); }

 private:
  std::array<char, 1024> bytes_ = {};
};

struct Disconnect {
  void operator()(AtollOipClient* client) const { Module().disconnect(client); }
};
using Client = std::unique_ptr<AtollOipClient, Disconnect>;

Client Connect(const OipAddress& address, const OipCredentials& credentials) {
  const std::string place = fmt::format("{}:{}", address.host, address.port);
  std::string ca;
  if (!credentials.ca_file.empty()) {
    ca = ReadBeginning(credentials.ca_file, kMaxCaBytes,
                       [&](const char* verb, const std::string& why) {
                         Fail(ExitCode::kFailure, "cannot {} '{}' of --ca-file: {}", verb,
                              credentials.ca_file, why);
                       });
  }
  const AtollOipAddress where = {place.c_str(), address.tls ? 1 : 0, ca.c_str(),
                                 credentials.token.c_str()};
  AtollOipClient* client = nullptr;
  Sentence sentence;
  if (Module().connect(&where, kGrpcConnectMs, &client, sentence.data(), sentence.size()) !=
      ATOLL_OK) {
    Fail(ExitCode::kNoDevice, "cannot reach {}: {}; start a server there, or give its address",
         address.text, sentence.text());
  }
  return Client(client);
}

class GrpcStream : public Stream {
 public:
  GrpcStream(Client client, std::string model, std::vector<OipTensor> inputs, AtollType output)
      : client_(std::move(client)),
        model_(std::move(model)),
        inputs_(std::move(inputs)),
        output_type_(output) {
    for (const OipTensor& input : inputs_) {
      tensors_.push_back({input.name.c_str(), input.datatype->name, input.shape.data(),
                          static_cast<int32_t>(input.shape.size())});
    }
  }

  void SetInputs(const Inputs& inputs) override {
    bytes_.clear();
    for (const auto& input : inputs) bytes_.push_back({input.data(), input.size()});
  }
  bool Run() override {
    return Module().infer(client_.get(), model_.c_str(), tensors_.data(), bytes_.data(),
                          static_cast<int32_t>(tensors_.size()), kGrpcAnswerMs, &output_,
                          sentence_.data(), sentence_.size()) == ATOLL_OK;
  }
  std::string failure() const override { return sentence_.text(); }
  OutputBytes output() const override {
    if (output_.data == nullptr || output_type_ == ATOLL_NO_TYPE) {
      Fail(ExitCode::kFailure,
           "the server's answer has no first output of a type that is known; check the server");
    }
    return {output_type_, {static_cast<const uint8_t*>(output_.data), output_.size}};
  }

 private:
  const Client client_;
  const std::string model_;
  const std::vector<OipTensor> inputs_;
  const AtollType output_type_;
  std::vector<AtollOipTensor> tensors_;
  std::vector<AtollOipBytes> bytes_;
  AtollOipBytes output_ = {};
  Sentence sentence_;
};

}  // namespace

std::unique_ptr<Target> OpenGrpcTarget(const OipAddress& address, const std::string& model,
                                       const OipCredentials& credentials, size_t streams) {
  CheckCredentials(address, credentials);
  const std::string name = address.model.empty() ? model : address.model;
  Client client = Connect(address, credentials);
  const std::string where = fmt::format("the model '{}' at {}", Printable(name), address.text);
  const AtollOipTensor* inputs = nullptr;
  const AtollOipTensor* outputs = nullptr;
  int32_t input_count = 0, output_count = 0;
  Sentence sentence;
  if (Module().describe(client.get(), name.c_str(), kGrpcAnswerMs, &inputs, &input_count, &outputs,
                        &output_count, sentence.data(), sentence.size()) != ATOLL_OK) {
    Fail(ExitCode::kUsage, "cannot use {}: {}; give the name of a model that is served", where,
         sentence.text());
  }
  Json description = {{"inputs", Json::array()}};
  for (int32_t i = 0; i < input_count; ++i) {
    const std::vector<int64_t> shape(inputs[i].shape, inputs[i].shape + inputs[i].rank);
    description["inputs"].push_back(
        {{"name", inputs[i].name}, {"datatype", inputs[i].datatype}, {"shape", shape}});
  }
  std::vector<OipTensor> read = ReadOipInputs(description, where);
  const OipDatatype* const output =
      output_count == 0 ? nullptr : FindOipDatatype(outputs[0].datatype);
  const AtollType output_type = output == nullptr ? ATOLL_NO_TYPE : output->type;
  std::vector<std::unique_ptr<Stream>> all;
  for (size_t i = 0; i < streams; ++i) {
    all.push_back(std::make_unique<GrpcStream>(
        i == 0 ? std::move(client) : Connect(address, credentials), name, read, output_type));
  }
  return std::make_unique<OipTarget>(address.text, name, std::move(read), std::move(all));
}

}  // namespace atollcmd

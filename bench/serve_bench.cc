// SPDX-License-Identifier: Apache-2.0
//
// What a request over HTTP costs beside the inference itself, in one run: the model in this
// process, through the core of the server, and from clients on loopback in the protocol's three
// forms.
//
//   serve_bench MODEL.tflite [DEVICE] [CLIENTS] [SECONDS]
#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "atoll/atoll.hpp"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/monotonic.h"
#include "serve/http/http_server.h"
#include "serve/inference/inference_server.h"
#include "serve/oip/rest.h"

using namespace atollserve;

namespace {

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "serve_bench: %s\n", why.c_str());
  std::exit(1);
}

// Runs `once` in `clients` threads, each with what `start` makes, and prints a line.
void Measure(const char* name, int clients, double seconds,
             const std::function<std::function<void()>()>& start) {
  std::vector<std::vector<int64_t>> times(static_cast<size_t>(clients));
  std::vector<std::thread> threads;
  const int64_t begin_ns = atollrt::MonotonicNs();
  const int64_t end_ns = begin_ns + static_cast<int64_t>(seconds * 1e9);
  for (std::vector<int64_t>& mine : times) {
    threads.emplace_back([&] {
      const std::function<void()> once = start();
      for (int i = 0; i < 20; ++i) once();
      for (int64_t now_ns = atollrt::MonotonicNs(); now_ns < end_ns;) {
        once();
        const int64_t after_ns = atollrt::MonotonicNs();
        mine.push_back(after_ns - now_ns);
        now_ns = after_ns;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double took = static_cast<double>(atollrt::MonotonicNs() - begin_ns) / 1e9;
  std::vector<int64_t> all;
  for (const auto& mine : times) all.insert(all.end(), mine.begin(), mine.end());
  if (all.empty()) Die(std::string(name) + ": nothing was done");
  std::sort(all.begin(), all.end());
  const auto percentile = [&](double share) {
    return static_cast<double>(
               all[static_cast<size_t>(share * static_cast<double>(all.size() - 1))]) /
           1000;
  };
  std::printf("%-22s %2d clients %8.0f requests/s  p50 %8.1f us  p99 %8.1f us\n", name, clients,
              static_cast<double>(all.size()) / took, percentile(0.5), percentile(0.99));
  std::fflush(stdout);
}

class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      Die("cannot connect");
    }
  }
  void Ask(const std::string& request) {
    for (size_t sent = 0; sent < request.size();) {
      const ssize_t more = send(socket_.get(), request.data() + sent, request.size() - sent, 0);
      if (more <= 0) Die("the server has gone");
      sent += static_cast<size_t>(more);
    }
    size_t got = 0, whole = 0;
    while (whole == 0 || got < whole) {
      if (got == answer_.size()) answer_.resize(std::max<size_t>(answer_.size() * 2, 65536));
      const ssize_t more = recv(socket_.get(), answer_.data() + got, answer_.size() - got, 0);
      if (more <= 0) Die("the server has gone");
      got += static_cast<size_t>(more);
      const size_t end = std::string_view(answer_.data(), got).find("\r\n\r\n");
      if (whole == 0 && end != std::string::npos) {
        const std::string_view head(answer_.data(), end);
        if (!head.starts_with("HTTP/1.1 200")) Die(answer_.substr(0, got));
        const size_t length = head.find("Content-Length: ") + 16;
        whole = end + 4 + static_cast<size_t>(std::atoll(head.data() + length));
      }
    }
  }

 private:
  atollrt::FileDescriptor socket_;
  std::string answer_;
};

std::string HttpRequestText(const std::string& head, const std::string& body) {
  return "POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n" + head +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) Die("usage: serve_bench MODEL.tflite [DEVICE] [CLIENTS] [SECONDS]");
  const std::string file = argv[1], device = argc > 2 ? argv[2] : "cpu";
  const int clients = argc > 3 ? std::atoi(argv[3]) : 1;
  const double seconds = argc > 4 ? std::atof(argv[4]) : 3;

  auto model = atollpp::Model::FromFile(file);
  auto delegate = atollpp::Delegate::Open(device);
  if (!model || !delegate) Die(model ? delegate.message() : model.message());
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.num_threads = 1;
  Measure("in process, Invoke", 1, seconds, [&]() -> std::function<void()> {
    auto made = atollpp::Interpreter::Create(*model, *delegate, options);
    if (!made) Die(made.message());
    const auto interpreter = std::make_shared<atollpp::Interpreter>(*std::move(made));
    return [interpreter] {
      if (auto status = interpreter->Invoke(); !status) Die(status.message());
    };
  });

  InferenceServerOptions server_options;
  server_options.device = device;
  server_options.threads = 1;
  server_options.models = {{"m", file}};
  auto inference = InferenceServer::Create(std::move(server_options));
  if (!inference.ok()) Die(inference.status().message());
  const auto info = (*inference)->Info("m", "");
  if (!info.ok()) Die(info.status().message());
  const TensorInfo& input = (*info)->inputs[0];
  const auto bytes = std::make_shared<const std::string>(input.bytes(), '\0');
  Measure("core", clients, seconds, [&]() -> std::function<void()> {
    return [&] {
      InferRequest request;
      request.model = "m";
      request.inputs.push_back(
          {.name = "",
           .type = input.type,
           .shape = input.shape,
           .bytes = {reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()},
           .owner = bytes});
      std::promise<bool> done;
      (*inference)->Infer(std::move(request), [&](const InferOutcome& outcome) {
        done.set_value(outcome.status.ok());
      });
      if (!done.get_future().get()) Die("a request failed");
    };
  });

  Rest rest(inference->get(), {});
  auto listener = ListenAt("127.0.0.1:0");
  if (!listener.ok()) Die(listener.status().message());
  auto server =
      HttpServer::Start(*std::move(listener), rest.ServerOptions({}, nullptr), rest.Handler());
  if (!server.ok()) Die(server.status().message());
  const std::string tensor = "{\"name\":\"" + input.name + "\",\"datatype\":\"" +
                             DataTypeName(input.type) + "\",\"shape\":" + ShapeText(input.shape);
  const std::string binary_head =
      "{\"parameters\":{\"binary_data_output\":true},\"inputs\":[" + tensor +
      ",\"parameters\":{\"binary_data_size\":" + std::to_string(bytes->size()) + "}}]}";
  std::string json = "{\"inputs\":[" + tensor + ",\"data\":[";
  for (size_t i = 0; i < input.elements(); ++i) json += i == 0 ? "0" : ",0";
  json += "]}]}";
  const std::string length = "Inference-Header-Content-Length: ";
  const std::pair<const char*, std::string> forms[] = {
      {"REST raw", HttpRequestText(length + "0\r\n", *bytes)},
      {"REST binary",
       HttpRequestText(length + std::to_string(binary_head.size()) + "\r\n", binary_head + *bytes)},
      {"REST JSON", HttpRequestText("", json)}};
  for (const auto& [name, text] : forms) {
    Measure(name, clients, seconds, [&, &request = text]() -> std::function<void()> {
      const auto client = std::make_shared<Client>((*server)->port());
      return [client, &request] { client->Ask(request); };
    });
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// A server of NATS with JetStream, in a process and a folder of its own, on a port of this computer
// that nobody else has.
#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace atollserve {

class NatsServer {
 public:
  // Where CMake has found it; "": nowhere.
  static constexpr const char* kProgram = ATOLL_NATS_SERVER;

  NatsServer() {
    std::string pattern = (std::filesystem::temp_directory_path() / "nats_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    Launch("-1");
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (port_.empty() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      port_ = PortInFile();
    }
    EXPECT_FALSE(port_.empty()) << Log();
  }
  ~NatsServer() {
    Kill();
    std::filesystem::remove_all(folder_);
  }
  NatsServer(const NatsServer&) = delete;
  NatsServer& operator=(const NatsServer&) = delete;

  std::string url() const { return "nats://127.0.0.1:" + port_; }
  const std::string& folder() const { return folder_; }

  void Kill() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }
  // Again, on the same port and with what was stored.
  void Start() { Launch(port_); }
  std::string Log() const { return Read(folder_ + "/log"); }

 private:
  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Launch(const std::string& port) {
    const std::string store = folder_ + "/store", log = folder_ + "/log";
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execl(kProgram, kProgram, "-a", "127.0.0.1", "-p", port.c_str(), "-js", "-sd", store.c_str(),
            "-l", log.c_str(), "--ports_file_dir", folder_.c_str(), nullptr);
      _exit(127);
    }
  }
  // Of the file that it writes when it listens: {"nats":["nats://127.0.0.1:40123"]}.
  std::string PortInFile() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (entry.path().extension() != ".ports") continue;
      const std::string text = Read(entry.path());
      const size_t end = text.find("\"]");
      if (end == std::string::npos) return "";
      const size_t begin = text.rfind(':', end) + 1;
      return text.substr(begin, end - begin);
    }
    return "";
  }

  std::string folder_;
  std::string port_;
  pid_t process_ = -1;
};

}  // namespace atollserve

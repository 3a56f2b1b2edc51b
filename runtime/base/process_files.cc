// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/process_files.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <memory>
#include <string_view>

#include "atoll/status.h"

namespace atollrt {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

bool IsDecimal(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

}  // namespace

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, CloseDirectory> open(opendir(directory.c_str()));
  if (open == nullptr) return names;
  while (const dirent* entry = readdir(open.get())) names.emplace_back(entry->d_name);
  return names;
}

std::vector<ProcessWithFile> ProcessesWithFile(const std::string& path) {
  std::vector<ProcessWithFile> processes;
  struct stat wanted = {};
  if (stat(path.c_str(), &wanted) != 0) return processes;
  for (const std::string& pid : NamesIn("/proc")) {
    if (!IsDecimal(pid)) continue;
    const std::string directory = "/proc/" + pid + "/fd/";
    for (const std::string& number : NamesIn(directory)) {
      struct stat found = {};
      if (!IsDecimal(number) || stat((directory + number).c_str(), &found) != 0) continue;
      if (found.st_dev != wanted.st_dev || found.st_ino != wanted.st_ino) continue;
      ProcessWithFile process{.pid = std::stoi(pid), .command = {}};
      std::ifstream name("/proc/" + pid + "/comm");
      std::getline(name, process.command);
      processes.push_back(std::move(process));
      break;
    }
  }
  return processes;
}

std::string ProcessesText(const std::vector<ProcessWithFile>& processes) {
  std::string text;
  for (const ProcessWithFile& process : processes) {
    text += Format("%s%d (%s)", text.empty() ? "" : ", ", process.pid, process.command.c_str());
  }
  return text;
}

}  // namespace atollrt

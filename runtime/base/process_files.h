// SPDX-License-Identifier: Apache-2.0
//
// Which processes have a file open, as far as /proc shows it to this user: all of them to root,
// otherwise the user's own.
#pragma once

#include <string>
#include <vector>

namespace atollrt {

struct ProcessWithFile {
  int pid = 0;
  std::string command;  // its name, at most 15 characters
};

// Empty if there is none, or none that may be looked at. `path` may be a device node.
std::vector<ProcessWithFile> ProcessesWithFile(const std::string& path);

// "12 (atoll), 31 (other)".
std::string ProcessesText(const std::vector<ProcessWithFile>& processes);

// What is in a directory, "." and ".." included; empty if it cannot be read.
std::vector<std::string> NamesIn(const std::string& directory);

}  // namespace atollrt

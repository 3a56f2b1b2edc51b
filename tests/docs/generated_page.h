// SPDX-License-Identifier: Apache-2.0
//
// The main program of those that write pages of docs/, or parts of them, from what the code does:
// without an argument it fails if the page is stale; --write writes it.
#pragma once

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

namespace atollrt {

// make(stored) gives the page as it must be, or "" after a message on stderr.
template <typename Make>
int RunGeneratedPage(int argc, char** argv, const char* page_path, Make make) {
  const bool write = argc == 2 && std::string(argv[1]) == "--write";
  if (argc > 1 && !write) {
    std::fprintf(stderr, "usage: %s [--write]\n", argv[0]);
    return 2;
  }
  const std::string path = std::string(ATOLL_SOURCE_DIR "/") + page_path;
  std::ifstream file(path, std::ios::binary);
  const std::string stored{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string page = make(stored);
  if (page.empty()) return 1;
  if (stored == page) return 0;
  if (!write) {
    std::fprintf(stderr, "%s is stale; write it anew with: %s --write\n", page_path, argv[0]);
    return 1;
  }
  std::ofstream out(path, std::ios::binary);
  out << page;
  if (out.flush()) return 0;
  std::fprintf(stderr, "cannot write %s\n", path.c_str());
  return 1;
}

}  // namespace atollrt

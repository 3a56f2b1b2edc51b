// SPDX-License-Identifier: Apache-2.0
//
// Runs a fuzz target once for each file of some directories, in builds without libFuzzer: finds of
// the past stay found.
//
//   fuzz-replays TARGET DIRECTORY...
//
// Fails if there is no such target, or no file.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include "tests/fuzz/fuzz_target.h"

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  const atollrt::FuzzTarget* target = atollrt::FuzzTarget::first;
  while (target != nullptr && target->name != name) target = target->next;
  if (target == nullptr) {
    std::fprintf(stderr, "There is no fuzz target '%s' in this program.\n",
                 argc > 1 ? argv[1] : "");
    return 2;
  }
  int files = 0;
  for (int i = 2; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file()) continue;
      std::ifstream stream(entry.path(), std::ios::binary);
      const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
      // A block of exactly this size, so that the sanitizers see every over-read.
      const std::unique_ptr<uint8_t[]> block(new uint8_t[bytes.size()]);
      std::copy(bytes.begin(), bytes.end(), block.get());
      std::printf("%s\n", entry.path().c_str());
      std::fflush(stdout);  // the last line names the culprit of a crash
      target->run(block.get(), bytes.size());
      ++files;
    }
  }
  std::printf("%d files\n", files);
  return files > 0 ? 0 : 1;
}

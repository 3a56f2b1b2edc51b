// SPDX-License-Identifier: Apache-2.0
#include "serve/oip/page.h"

#include <array>

#include "serve/oip/page_files.h"

namespace atollserve {
namespace {

constexpr std::array<PageFile, 4> kPageFiles = {{
    {"/", "text/html; charset=utf-8", kIndexHtml},
    {"/icon.svg", "image/svg+xml", kIconSvg},
    {"/page.js", "text/javascript; charset=utf-8", kPageJs},
    {"/style.css", "text/css; charset=utf-8", kStyleCss},
}};

}  // namespace

const PageFile* FindPage(std::string_view path) {
  for (const PageFile& file : kPageFiles) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

}  // namespace atollserve

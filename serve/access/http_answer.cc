// SPDX-License-Identifier: Apache-2.0
#include "serve/access/http_answer.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include "atoll/status.h"

namespace atollserve {
namespace {

struct Reason {
  int status;
  const char* text;
};
constexpr Reason kReasons[] = {
    {200, "OK"},
    {204, "No Content"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

}  // namespace

std::string BeginHttpAnswer(int status) {
  const Reason* const reason =
      std::find_if(std::begin(kReasons), std::end(kReasons),
                   [status](const Reason& known) { return known.status == status; });
  char date[64];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return atollrt::Format("HTTP/1.1 %d %s\r\nDate: %s\r\n", status,
                         reason == std::end(kReasons) ? "Unknown" : reason->text, date);
}

}  // namespace atollserve

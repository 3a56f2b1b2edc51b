// SPDX-License-Identifier: Apache-2.0
#include "serve/http/request_parser.h"

#include <algorithm>
#include <cstdint>

namespace atollserve {

using atollrt::Format;
using atollrt::Status;

namespace {

constexpr size_t kHeaders = 100;

HttpRequestParser* Of(http_parser* parser) { return static_cast<HttpRequestParser*>(parser->data); }

}  // namespace

const http_parser_settings HttpRequestParser::kSettings = {
    .on_message_begin = nullptr,
    .on_url =
        [](http_parser* parser, const char* at, size_t size) {
          return Of(parser)->OnUrl({at, size});
        },
    .on_status = nullptr,
    .on_header_field =
        [](http_parser* parser, const char* at, size_t size) {
          return Of(parser)->OnHeaderName({at, size});
        },
    .on_header_value =
        [](http_parser* parser, const char* at, size_t size) {
          return Of(parser)->OnHeaderValue({at, size});
        },
    .on_headers_complete = [](http_parser* parser) { return Of(parser)->OnHead(); },
    .on_body =
        [](http_parser* parser, const char* at, size_t size) {
          return Of(parser)->OnBody({at, size});
        },
    .on_message_complete =
        [](http_parser* parser) {
          Of(parser)->complete_ = true;
          http_parser_pause(parser, 1);
          return 0;
        },
    .on_chunk_header = nullptr,
    .on_chunk_complete = nullptr,
};

HttpRequestParser::HttpRequestParser(const Limits& limits, HttpBodyMemory* memory, Client* client)
    : limits_(limits), memory_(*memory), client_(*client) {
  Begin();
}

void HttpRequestParser::Begin() {
  Drop();
  http_parser_init(&parser_, HTTP_REQUEST);
  parser_.data = this;
  head_bytes_ = 0;
  in_value_ = false;
  head_done_ = false;
  body_limit_ = limits_.body_bytes;
  complete_ = false;
  refusal_.reset();
}

void HttpRequestParser::Drop() {
  request_ = HttpRequest();
  memory_.bytes -= counted_bytes_;
  counted_bytes_ = 0;
}

HttpRequestParser::Progress HttpRequestParser::Parse(std::string_view bytes, size_t* parsed) {
  *parsed = http_parser_execute(&parser_, &kSettings, bytes.data(), bytes.size());
  *parsed = std::min(*parsed, bytes.size());
  if (refusal_) return Progress::kRefused;
  if (complete_) return Progress::kComplete;
  const auto error = static_cast<http_errno>(parser_.http_errno);
  if (error == HPE_OK && parser_.upgrade == 0) return Progress::kIncomplete;
  const bool version = error == HPE_INVALID_VERSION;
  const int status = error == HPE_HEADER_OVERFLOW  ? 431
                     : error == HPE_INVALID_METHOD ? 501
                     : version                     ? 505
                                                   : 400;
  Refuse(status, Format("This is no request of HTTP/1.1: %s.", http_errno_description(error)));
  return Progress::kRefused;
}

int HttpRequestParser::Refuse(int status, const std::string& sentence) {
  refusal_ = client_.Refusal(status, sentence);
  return -1;
}

int HttpRequestParser::CountHead(size_t bytes) {
  head_bytes_ += bytes;
  if (head_bytes_ <= limits_.head_bytes) return 0;
  return Refuse(431, Format("A request with its headers has at most %zu bytes before its body.",
                            limits_.head_bytes));
}

int HttpRequestParser::OnUrl(std::string_view text) {
  request_.path += text;
  return CountHead(text.size());
}

int HttpRequestParser::OnHeaderName(std::string_view text) {
  HttpHeaders& headers = request_.headers;
  const bool is_new = in_value_ || headers.empty();
  in_value_ = false;
  // With ": " and the end of its line, which come once, in however many pieces its name does.
  if (const int refused = CountHead(text.size() + (is_new ? 4 : 0)); refused != 0) return refused;
  if (head_done_) return 0;
  if (is_new) {
    if (headers.size() >= kHeaders) {
      return Refuse(431, Format("A request has at most %zu headers.", kHeaders));
    }
    headers.emplace_back();
  }
  for (const char c : text) headers.back().first += LowerOf(c);
  return 0;
}

int HttpRequestParser::OnHeaderValue(std::string_view text) {
  if (const int refused = CountHead(text.size()); refused != 0) return refused;
  in_value_ = true;
  if (head_done_) return 0;
  request_.headers.back().second += text;
  return 0;
}

int HttpRequestParser::OnHead() {
  head_done_ = true;
  request_.method = http_method_str(static_cast<http_method>(parser_.method));
  keep_alive_ = http_should_keep_alive(&parser_) != 0;
  if (parser_.http_major != 1) {
    return Refuse(505, "This server speaks HTTP/1.1 and HTTP/1.0.");
  }
  if (const Status head = CompleteHead(parser_.http_minor == 0, &request_); !head.ok()) {
    return Refuse(400, head.message());
  }
  const std::string_view encoding = request_.Header("content-encoding");
  if (!encoding.empty() && !EqualsIgnoringCase(encoding, "identity")) {
    return Refuse(415, "This server takes no compressed bodies.");
  }
  size_t body_limit = body_limit_;
  refusal_ = client_.OnHead(&request_, &body_limit);
  if (refusal_) return -1;
  body_limit_ = std::min(body_limit, body_limit_);
  const bool chunked = (parser_.flags & F_CHUNKED) != 0;
  const bool has_length = !chunked && parser_.content_length != UINT64_MAX;
  const uint64_t length = has_length ? parser_.content_length : 0;
  if (length > body_limit_) {
    return Refuse(413, Format("The body has %llu bytes; at most %zu are taken here.",
                              static_cast<unsigned long long>(length), body_limit_));
  }
  const std::string_view expect = request_.Header("expect");
  if (!expect.empty() && !EqualsIgnoringCase(expect, "100-continue")) {
    return Refuse(417, "This server knows \"Expect: 100-continue\" only.");
  }
  if (length > 0 || chunked) {
    request_.body.reserve(std::min<size_t>(length, 1 << 20));
    client_.OnBody(!expect.empty() && parser_.http_minor > 0);
  }
  // An upgrade that nobody takes is an ordinary request.
  parser_.upgrade = 0;
  return 0;
}

int HttpRequestParser::OnBody(std::string_view bytes) {
  std::string& body = request_.body;
  if (bytes.size() > body_limit_ - body.size()) {
    return Refuse(413, Format("The body has more than %zu bytes, which is the most that is "
                              "taken here.",
                              body_limit_));
  }
  if (memory_.bytes + bytes.size() > memory_.most_bytes) {
    Refuse(503, Format("All requests together have bodies of %zu bytes, as much as is taken at "
                       "a time.",
                       memory_.most_bytes));
    refusal_->headers.emplace_back("Retry-After", "1");
    return -1;
  }
  memory_.bytes += bytes.size();
  counted_bytes_ += bytes.size();
  body += bytes;
  return 0;
}

}  // namespace atollserve

#include "source/uri.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(Uri, PathsAreNotUris) {
  EXPECT_TRUE(is_uri("https://host/model.safetensors"));
  EXPECT_TRUE(is_uri("s3://bucket"));
  EXPECT_TRUE(is_uri("hf://org/repo"));
  for (const char* const path : {"", "model.safetensors", "/a/b", "a:b", "://x", "1a://x", "a b://x", "./https://x"}) {
    EXPECT_FALSE(is_uri(path)) << path;
  }
}

TEST(Uri, NamesHaveNoQueryAndParentsKeepIt) {
  EXPECT_EQ(file_name("https://host/dir/my%20model.safetensors?key=a/b.c"), "my model.safetensors");
  EXPECT_EQ(file_name("/dir/model.safetensors"), "model.safetensors");
  EXPECT_EQ(file_name("s3://bucket/what?/100%25.json"), "100%25.json");
  EXPECT_EQ(join_path("s3://bucket/what?", "a.json"), "s3://bucket/what?/a.json");
  EXPECT_EQ(parent_path("https://host/dir/index.json?key=1"), "https://host/dir?key=1");
  EXPECT_EQ(parent_path("hf://org/repo@main/config.json"), "hf://org/repo@main");
  EXPECT_EQ(parent_path("model.index.json"), ".");
  EXPECT_EQ(join_path("https://host/dir?key=1", "my model.json"), "https://host/dir/my%20model.json?key=1");
  EXPECT_EQ(join_path("https://host/dir/", "a/b.json"), "https://host/dir/a/b.json");
  EXPECT_EQ(join_path("s3://bucket/dir", "my model.json"), "s3://bucket/dir/my model.json");
  EXPECT_EQ(join_path("dir", "a.json"), "dir/a.json");
}

TEST(Uri, DetectsAMissingHost) {
  for (const char* const uri : {"http://host", "http://host:80/x", "http://me@host?x", "https://[::1]/"})
    EXPECT_TRUE(has_host(uri));
  for (const char* const uri : {"http://", "http:///x", "http://?x", "http://me@/x", "http://:80/x"}) EXPECT_FALSE(has_host(uri));
}

TEST(Uri, SecretsAreNotShown) {
  EXPECT_EQ(without_secrets("https://user:pass@host/a?X-Amz-Signature=1#x"), "https://host/a");
  EXPECT_EQ(without_secrets("hf://org/repo@main/a"), "hf://org/repo@main/a");
  EXPECT_EQ(without_secrets("https://host/a@b"), "https://host/a@b");
  EXPECT_EQ(without_secrets("what?not.safetensors"), "what?not.safetensors");
  EXPECT_EQ(shown("https://host/\x1b[31m?a"), "https://host/\\x1b[31m");
}

TEST(Uri, PercentEncodingRoundTrips) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(percent_decode(percent_encode(all)), all);
  EXPECT_EQ(percent_encode("a/b c~é"), "a%2Fb%20c~%C3%A9");
  EXPECT_EQ(percent_encode("a/b", "/"), "a/b");
  EXPECT_EQ(percent_decode("%4"), "%4");
  EXPECT_EQ(percent_decode("%zz%41"), "%zzA");
}

TEST(Uri, ResolvesReferencesAgainstABase) {
  const std::string base = "https://host:8443/a/b/c?x=1";
  EXPECT_EQ(resolve_reference(base, "http://other/d"), "http://other/d");
  EXPECT_EQ(resolve_reference(base, "//other/d"), "https://other/d");
  EXPECT_EQ(resolve_reference(base, "/d?y"), "https://host:8443/d?y");
  EXPECT_EQ(resolve_reference(base, "d"), "https://host:8443/a/b/d");
  EXPECT_EQ(resolve_reference(base, "../d"), "https://host:8443/a/d");
  EXPECT_EQ(resolve_reference(base, "../../../d"), "https://host:8443/d");
  EXPECT_EQ(resolve_reference(base, "?y=2"), "https://host:8443/a/b/c?y=2");
  EXPECT_EQ(resolve_reference("https://host", "d"), "https://host/d");
}

TEST(Uri, OriginIsSchemeHostAndPort) {
  EXPECT_EQ(uri_origin("HTTPS://Host/a"), "https://host:443");
  EXPECT_EQ(uri_origin("http://host"), "http://host:80");
  EXPECT_EQ(uri_origin("http://u:p@host:8080?x"), "http://host:8080");
  EXPECT_EQ(uri_origin("http://[::1]/"), "http://[::1]:80");
  EXPECT_NE(uri_origin("http://host"), uri_origin("https://host"));
  EXPECT_NE(uri_origin("https://host.evil"), uri_origin("https://host"));
}

}  // namespace
}  // namespace ballast

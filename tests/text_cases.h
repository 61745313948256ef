// Text in, text out: each file of a folder's texts/ holds an input, a line of dashes, and what must come out.
// MAGNETO_UPDATE=1 writes the second half again.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace magneto {

/// `transform` takes the first half and the file's path, which its own expectations name.
inline void expect_text_cases(
    const std::filesystem::path& folder,
    const std::function<std::string(const std::string& input, const std::filesystem::path& path)>& transform) {
  const std::string line = "----\n";
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  ASSERT_FALSE(paths.empty());
  for (const auto& path : paths) {
    std::stringstream content;
    content << std::ifstream(path).rdbuf();
    const std::string text = content.str();
    const size_t cut = text.find(line);
    const std::string input = text.substr(0, cut), output = transform(input, path);
    if (std::getenv("MAGNETO_UPDATE"))
      std::ofstream(path) << input << line << output;
    else
      EXPECT_EQ(output, cut == std::string::npos ? "" : text.substr(cut + line.size())) << path;
  }
}

}  // namespace magneto

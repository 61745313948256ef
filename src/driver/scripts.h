// driver/scripts.h: writes a script down that somebody is to run.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace magneto::driver {

/// The path of a new file with this text, in MAGNETO_CHECK_DIR or a new folder of the system's temporary one, and
/// beside it the files that the script reads: its own name with another ending, the bytes. Empty: it could not be
/// written.
std::string write_script(const std::string& text, const std::vector<std::pair<std::string, std::string>>& files);

}  // namespace magneto::driver

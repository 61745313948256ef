// explain/logs.h: the report as it comes, told to those who asked for it (base/logs.h).
#pragma once

namespace magneto::explain {

/// From now on each note of the process's report is told.
void tell_the_report();

}  // namespace magneto::explain

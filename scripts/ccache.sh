# scripts/ccache.sh, to be sourced: the middle is the same for every torch and for the tests. Where ccache is there it is
# compiled once for all of them.
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache
  export CCACHE_DIR=${CCACHE_DIR:-$PWD/build/ccache} CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
fi

#!/bin/sh
# change.sh VARIANT FILE: edits the flights module; fails where the text that it edits is not there any more.
set -eu

edit() { # pattern replacement
    grep -q "$1" "$file" || { echo "no line of $file matches $1" >&2; exit 1; }
    sed -i "s/$1/$2/" "$file"
}

variant=$1 file=$2
case $variant in
v2) # a valid update: a longer grace, and one more PState
    edit '^ON_TIME_MINUTES = 15$' 'ON_TIME_MINUTES = 30'
    edit '^\( *\)mb.pstate("$$planesByMaker", .*$' '&\n\1mb.pstate("$$planesSeen", PState.map_schema(str, int))'
    edit '^\( *\)\.compound_agg("$$planesByMaker", .*$' '&\n\1.compound_agg("$$planesSeen", CompoundAgg.map("*maker", Agg.count()))'
    ;;
broken-import)
    edit '^import polars as pl$' 'import polars as pl\nimport a_package_that_is_not_installed'
    ;;
incompatible) # a schema of another type, and a PState gone that was not named for deletion
    edit 'mb.pstate("$$hours", PState.map_schema(int, DELAYS))' 'mb.pstate("$$hours", PState.map_schema(str, DELAYS))'
    sed -i '/minutesLate"/s/\$\$minutesLate/$$minutesLost/; s/local_select("$$minutesLate"/local_select("$$minutesLost"/' "$file"
    ;;
*)
    echo "unknown variant $variant" >&2
    exit 1
    ;;
esac

#!/bin/sh
# Removes from an installed pyspark what a driver and its executors never load: the machine learning library, Hive,
# Connect's shell, RocksDB (for Spark's own streaming state), and native code for other systems. RDD jobs, Spark SQL
# and Kubernetes stay whole; images/tests run both in the image.
set -eu
cd "$1"

rm -rf examples data jars/connect-repl
cd jars
rm -f rocksdbjni-* \
    spark-mllib* spark-graphx* spark-streaming_* breeze* spire* algebra_* cats-kernel_* lapack-* arpack* blas-* JTransforms-* pmml-* \
    spark-hive* hive-* derby* datanucleus-* libthrift-* libfb303-* jdo-api-* javax.jdo-* HikariCP-* bonecp-* antlr-runtime-* ST4-* \
    zookeeper-* curator-* jline-* \
    netty-tcnative-boringssl-static-*osx* netty-tcnative-boringssl-static-*windows* \
    netty-transport-native-kqueue-* netty-codec-native-quic-*osx* netty-codec-native-quic-*windows*

#!/bin/bash
# What Spark expects of an image on Kubernetes: `driver …` and `executor` as first argument; anything else is run as it is.
set -euo pipefail

# Java takes the user's name from the user database, and a namespace may run us as a uid that has none. With a read-only
# root the entry goes into a file of its own that libnss_wrapper adds to the database.
name_user() {
    local entry wrapper
    getent passwd "$(id -u)" >/dev/null && return
    entry="tidemill:x:$(id -u):$(id -g):Tidemill:${HOME:-/tmp}:/usr/sbin/nologin"
    if [ -w /etc/passwd ]; then
        echo "$entry" >>/etc/passwd
        return
    fi
    wrapper="$(find /usr/lib /usr/lib64 -name libnss_wrapper.so 2>/dev/null | head -n 1)"
    export NSS_WRAPPER_PASSWD="${TMPDIR:-/tmp}/passwd" NSS_WRAPPER_GROUP=/etc/group LD_PRELOAD="$wrapper"
    { cat /etc/passwd; echo "$entry"; } >"$NSS_WRAPPER_PASSWD"
}

# One Java option a line, in the order of their numbers: SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, … SPARK_JAVA_OPT_10.
java_options() {
    env -0 | grep -z '^SPARK_JAVA_OPT_[0-9]*=' | sort -z -t _ -k 4 -n | sed -z 's/^[^=]*=//' || true
}

# Options and class path of an executor's JVM. It takes the archive of Spark's classes only where its jars come first, in this
# order (tidemill.spark.class_archive); with a class path of the user, which must come before, the archive stays unused.
archive="" first=""
find_archive() {
    local home jars LC_ALL=C
    home="$(readlink -f "$SPARK_HOME")"
    [ -z "${HADOOP_CONF_DIR:-}${SPARK_CLASSPATH:-}" ] && [ -r "$home/classes.jsa" ] && [ ! "$home/jars" -nt "$home/classes.jsa" ] ||
        return 0
    archive="-XX:SharedArchiveFile=$home/classes.jsa"
    jars=("$home"/jars/*.jar)
    first="$(IFS=: && echo "${jars[*]}"):"
}

classpath() {
    local path="$first${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${HADOOP_CONF_DIR:+$HADOOP_CONF_DIR:}"
    echo "$path${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}:$PWD"
}

name_user
case "${1:-}" in
driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "$@"
    ;;
executor)
    shift
    mapfile -d '' -t options < <(java_options)
    find_archive
    exec "${JAVA_HOME:-/opt/java}/bin/java" "${options[@]}" ${archive:+"$archive"} \
        "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "$(classpath)${SPARK_DIST_CLASSPATH:+:$SPARK_DIST_CLASSPATH}" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME" "$@"
    ;;
*)
    exec "$@"
    ;;
esac

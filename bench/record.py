"""Measurements as JSON, as bench/results keeps them: on which machine, when, at which commit, and one line for each row.

bench/tables.py makes the tables of docs/performance.md from these files."""
import datetime
import json
import os
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))


def run_json(command):
    """The last line that the command prints, as JSON."""
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.strip().splitlines()[-1])


def write_whole(path, content):
    """Writes the file, or leaves what was there."""
    with open(path + ".part", "w", encoding="utf-8") as out:
        out.write(content)
    os.replace(path + ".part", path)


def commit():
    """The commit that is checked out, or "unknown" if these sources are no git repository."""
    try:
        done = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def processor(cpuinfo="/proc/cpuinfo"):
    """The processor's name, or None if the system does not tell."""
    try:
        with open(cpuinfo, encoding="utf-8") as file:
            found = re.search(r"^model name\s*:\s*(.+)$", file.read(), re.MULTILINE)
    except OSError:
        return None
    return found and found.group(1).strip()


def about(clattn, machine=None):
    """What every record begins with. `machine` describes the machine; by default, what it says of itself."""
    used = run_json([clattn, "bench", "softmax", "--shape", "1,1", "--repeat", "1", "--json"])
    drivers = {(each["name"], each["platform"]): each["driver"]
               for each in run_json([clattn, "devices", "--json"])["devices"]}
    return {"machine": machine or "%s, %d cores" % (processor() or used["device"], os.cpu_count()),
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


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)

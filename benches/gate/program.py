"""What every program of the experiment is."""
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENT = dict(os.environ, PYTHONHASHSEED="0", LC_ALL="C")


class Program:
    """A program and its workload. `folder` is its own; what `prepare` puts there is kept."""

    # Files that have to be on the PATH.
    needs = ()
    # Both runs of a pair are recorded at the same time on one processor. Not where threads compute at the same time.
    together = True

    def __init__(self, name):
        self.name = name

    def lacks(self):
        """What has to be installed before it can run."""
        return [need for need in self.needs if not shutil.which(need)]

    def prepare(self, folder):
        pass

    def command(self, folder, kind, amount):
        """The words of a run with this kind of change ("none": without), and its standard input."""
        raise NotImplementedError

    def clear(self, folder):
        """Removes what the last run left, outside of the recording."""

    def run(self, recorder, folder, kind, amount):
        """One run under `recorder`, the words that stand before the command."""
        self.clear(folder)
        words, text = self.command(folder, kind, amount)
        subprocess.run(
            recorder + words, input=text, text=True, env=self.environment(folder), check=True,
            stdout=subprocess.DEVNULL,
        )

    @staticmethod
    def environment(folder):
        # A program's temporary files are on a disk, where a sync means something.
        return dict(ENVIRONMENT, TMPDIR=str(folder))

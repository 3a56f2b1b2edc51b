# SPDX-License-Identifier: Apache-2.0
"""Several threads of Python: interpreters side by side, one interpreter in turns, the interpreter
lock of Python while a model runs."""
import subprocess
import sys
import threading
import unittest

import atoll
import numpy as np
import packages
import tflite_runtime.interpreter as tflite
from packages import FASHION, SCENES


class Threads(unittest.TestCase):
    def side_by_side(self, *calls):
        """Runs the calls on a thread each, and raises what one of them raises."""
        failures = []

        def run(call):
            try:
                call()
            except BaseException as error:  # pylint: disable=broad-except
                failures.append(error)

        threads = [threading.Thread(target=run, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
            self.assertFalse(thread.is_alive(), "it hangs")
        if failures:
            raise failures[0]

    def test_interpreters_of_their_own(self):
        delegate = atoll.Delegate("emu")
        images = [packages.seeded(seed, (1, 28, 28, 1), np.int8) for seed in range(8)]
        expected = [atoll.Interpreter(FASHION).run(image)[0] for image in images]

        def work(device, seed):
            def run():
                for _ in range(20):
                    interpreter = atoll.Interpreter(FASHION, device, threads=1)
                    for _ in range(10):
                        np.testing.assert_array_equal(interpreter.run(images[seed])[0],
                                                      expected[seed])
            return run

        self.side_by_side(*(work(delegate if seed % 2 else None, seed) for seed in range(8)))

    def test_one_interpreter_takes_turns(self):
        interpreter = tflite.Interpreter(str(FASHION))
        interpreter.allocate_tensors()
        image = packages.seeded(1, (1, 28, 28, 1), np.int8)
        interpreter.set_tensor(0, image)
        interpreter.invoke()
        expected = interpreter.get_tensor(25)

        def work():
            for _ in range(500):
                interpreter.set_tensor(0, image)
                interpreter.invoke()
                interpreter.get_tensor_details()
                np.testing.assert_array_equal(interpreter.get_tensor(25), expected)

        self.side_by_side(*[work] * 4)

    def test_answers_belong_to_their_questions(self):
        interpreter = atoll.Interpreter(FASHION, threads=1)
        images = [packages.seeded(seed, (1, 28, 28, 1), np.int8) for seed in range(4)]
        expected = [interpreter.run(image)[0] for image in images]

        def work(seed):
            def run():
                for _ in range(400):
                    np.testing.assert_array_equal(interpreter.run(images[seed])[0], expected[seed])
            return run

        self.side_by_side(*map(work, range(4)))

    def test_a_forked_child_ends(self):
        """There interpreters go, although the threads that they had are not there."""
        program = """if True:
            import os, sys, atoll
            kept = [atoll.Interpreter(sys.argv[1], device, threads=2) for device in (None, "emu")]
            for interpreter in kept:
                interpreter.invoke()
            child = os.fork()
            if child == 0:
                del kept, interpreter
                sys.exit(7)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            """
        done = subprocess.run([sys.executable, "-c", program, str(FASHION)], timeout=60,
                              stdout=subprocess.PIPE, check=True)
        self.assertEqual(done.stdout, b"7\n")

    def test_shapes_change_while_others_look(self):
        interpreter = atoll.Interpreter(FASHION, threads=1)
        done = threading.Event()

        def resize():
            try:
                for round_ in range(300):
                    try:
                        interpreter.resize({0: (1 + round_ % 3, 28, 28, 1)})
                    except BufferError:
                        pass
            finally:
                done.set()

        def look():
            while not done.is_set():
                try:
                    interpreter.invoke()
                    view = interpreter.outputs[0].array
                    self.assertEqual(view.shape[1], 10)
                    int(view.sum())
                    interpreter.outputs[0].numpy()
                except ValueError:  # not ready, or another shape meanwhile
                    pass
                repr(interpreter.inputs[0])

        self.side_by_side(resize, look, look)

    def test_the_lock_is_free_during_an_invocation(self):
        """A thread of Python ends an invocation of another one that would last for minutes."""
        interpreter = atoll.Interpreter(SCENES, "emu+stepped")
        entered = threading.Event()

        def run():
            entered.set()
            with self.assertRaises(atoll.CancelledError):
                while True:
                    interpreter.invoke()

        def cancel():
            entered.wait()
            while runner.is_alive():
                interpreter.cancel()
                runner.join(0.01)

        runner = threading.Thread(target=run, daemon=True)
        runner.start()
        self.side_by_side(cancel)


if __name__ == "__main__":
    unittest.main()

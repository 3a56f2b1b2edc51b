# SPDX-License-Identifier: Apache-2.0
"""Files with labels."""
import re
from typing import Dict


def read_label_file(file_path: str) -> Dict[int, str]:
    """Labels by class: a line is "id text", "id:text" or the text alone, which then belongs to the
    number of the line, counted from 0."""
    labels = {}
    with open(file_path, encoding="utf-8") as file:
        for number, line in enumerate(file):
            pair = re.fullmatch(r"\s*(\d+)(?:\s*:\s*|\s+)(.*\S)\s*", line)
            if pair:
                labels[int(pair[1])] = pair[2]
            else:
                labels[number] = line.strip()
    return labels

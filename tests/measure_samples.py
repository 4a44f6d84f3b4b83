"""What people said about a photo, and where: for tests of the tools that measure."""

CAPTIONS = (
    "A man holds a red ball in the park.",
    "Two dogs and a cat sit on the table.",
    "The woman runs with a dog.",
    "A cup of coffee on a wooden table.",
    "A cat sits in front of a man.",
)
ENTITIES = "[/EN#1/people A man] holds [/EN#2/other a red ball] in the park ."

"""The labelling configuration of a Label Studio project: which control takes the boxes, and which labels it knows."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from coord_codec import InputError

CONTROLS = {"rectanglelabels": "box", "polygonlabels": "outline", "keypointlabels": "points"}
"""Tags of the controls for shapes, in lower case."""


@dataclass(frozen=True)
class Labelling:
    """Where predictions go.

    Attributes:
        from_name: name of the control
        to_name: name of its image
        key: key of the task's data under which the image is
        labels: the labels that the control knows
    """

    from_name: str
    to_name: str
    key: str
    labels: frozenset[str]

    @classmethod
    def read(cls, config: str, control: str = "rectanglelabels") -> Labelling:
        """Read the configuration of a project.

        Args:
            config: its XML
            control: tag of the control, see `CONTROLS`

        Raises:
            InputError: it is no XML, or has no such control of an image

        Example:
            >>> image, box = '<Image name="i" value="$photo"/>', '<RectangleLabels name="l" toName="i">'
            >>> found = Labelling.read(f'<View>{image}{box}<Label value="cat"/></RectangleLabels></View>')
            >>> found.from_name, found.key, sorted(found.labels)
            ('l', 'photo', ['cat'])
        """
        try:
            root: Element = fromstring(config)
        except (ParseError, DefusedXmlException, ValueError) as error:
            raise InputError(f"label_config: not XML ({error})") from None
        images = {e.get("name"): e.get("value", "") for e in root.iter() if e.tag.lower() == "image"}
        for element in root.iter():
            name, image = element.get("name"), element.get("toName")
            if element.tag.lower() == control and name and image in images:
                labels = {e.get("value") for e in element.iter() if e.tag.lower() == "label"}
                return cls(name, str(image), images[image].lstrip("$"), frozenset(filter(None, labels)))
        raise InputError(
            f"label_config: expected a control <{control}> of an <Image>, found none; choose the template for object "
            "detection with bounding boxes"
        )
